//! The operator's secrets, which seal the secret that principals are derived from.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The variable that may hold the secrets themselves.
const VARIABLE: &str = "SEMEL_PRINCIPAL_SECRET";

/// The shortest secret; shorter ones can be guessed.
const MIN_BYTES: usize = 16;

/// The secrets: the first one seals, all of them open. Empty if nothing is configured. They are
/// never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct PrincipalSecrets {
    file: Option<PathBuf>,
    secrets: Vec<String>,
}

impl PrincipalSecrets {
    /// Reads the secrets from the file, or else from the variable.
    ///
    /// # Errors
    /// If the file cannot be read, or a secret is too short.
    pub(super) fn read(file: Option<PathBuf>) -> Result<Self> {
        let Some(path) = &file else {
            let text = std::env::var(VARIABLE).unwrap_or_default();
            return Ok(Self { secrets: split(&text).context(VARIABLE)?, file });
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("could not read the principal secret from {}", path.display()))?;
        let secrets = split(&text).with_context(|| format!("principal-secret-file {}", path.display()))?;
        ensure!(!secrets.is_empty(), "principal-secret-file {} holds no secret", path.display());
        Ok(Self { file, secrets })
    }

    pub(crate) fn all(&self) -> &[String] {
        &self.secrets
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

fn split(text: &str) -> Result<Vec<String>> {
    let secrets: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    ensure!(
        secrets.iter().all(|secret| secret.len() >= MIN_BYTES),
        "a secret is shorter than {MIN_BYTES} characters: make one with `openssl rand -hex 32`"
    );
    Ok(secrets)
}

impl fmt::Debug for PrincipalSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_enough_and_not_shown() {
        let secrets = split("0123456789abcdef\nfedcba9876543210\n").unwrap();
        assert_eq!(secrets.len(), 2);
        let shown = format!("{:?}", PrincipalSecrets { file: None, secrets });
        assert_eq!(shown, "2 secrets");
        assert!(split("short").unwrap_err().to_string().contains("openssl rand"));
    }
}
