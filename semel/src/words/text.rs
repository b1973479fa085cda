//! Validation of text from outside.
//!
//! Keys, realms, operations and similar texts are stored, logged and shown on consoles. They are
//! checked here, where they enter, so that the code inside can rely on it.

use std::sync::Arc;

use thiserror::Error;

/// The limits of one kind of text.
pub(crate) struct Rule {
    pub(crate) part: &'static str,
    pub(crate) min_bytes: usize,
    pub(crate) max_bytes: usize,
    pub(crate) ascii_only: bool,
    pub(crate) outer_spaces: bool,
}

/// The error for text that breaks a limit; the message names the part and the limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The text is empty and must not be.
    #[error("{part} is empty")]
    Empty {
        /// The name of the part in the message.
        part: &'static str,
    },
    /// The text is longer than the part may be.
    #[error("{part} is {bytes} bytes long, the limit is {limit}")]
    TooLong {
        /// The name of the part.
        part: &'static str,
        /// The length of the text.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A character that the part may not hold.
    #[error("{part} has the character {found:?} at byte {at}; allowed are {allowed}")]
    Character {
        /// The name of the part.
        part: &'static str,
        /// The refused character.
        found: char,
        /// Its position in bytes, from 0.
        at: usize,
        /// The allowed characters.
        allowed: &'static str,
    },
    /// The text begins or ends with a space.
    #[error("{part} begins or ends with a space")]
    OuterSpace {
        /// The name of the part.
        part: &'static str,
    },
}

impl Rule {
    /// Returns the text unchanged if it keeps the rule.
    pub(crate) fn check<'a, T: From<&'a str>>(&self, text: &'a str) -> Result<T, TextError> {
        let part = self.part;
        if text.len() < self.min_bytes {
            return Err(TextError::Empty { part });
        }
        if text.len() > self.max_bytes {
            return Err(TextError::TooLong { part, bytes: text.len(), limit: self.max_bytes });
        }
        let allowed = if self.ascii_only {
            "printable ASCII characters"
        } else {
            "characters that are not control characters"
        };
        let refused = |c: char| c.is_control() || (self.ascii_only && !c.is_ascii());
        // Most texts are printable ASCII, which every rule allows and which is quicker to check.
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
            && let Some((at, found)) = text.char_indices().find(|(_, c)| refused(*c))
        {
            return Err(TextError::Character { part, found, at, allowed });
        }
        if !self.outer_spaces && (text.starts_with(' ') || text.ends_with(' ')) {
            return Err(TextError::OuterSpace { part });
        }
        Ok(T::from(text))
    }
}

/// Text for people that may be shortened but is never refused: control characters become spaces,
/// and text over the limit is cut off.
pub(crate) fn shorten(text: &str, max_bytes: usize) -> Arc<str> {
    // `str::floor_char_boundary` needs Rust 1.91, above the MSRV.
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let cut = &text[..end];
    if !cut.contains(char::is_control) {
        return Arc::from(cut);
    }
    let clean: String = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Arc::from(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_text_ends_at_a_character_and_holds_no_control_characters() {
        assert_eq!(&*shorten("a\nb\0c", 10), "a b c");
        assert_eq!(&*shorten("aé", 2), "a");
    }
}
