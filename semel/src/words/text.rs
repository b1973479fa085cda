//! Text from outside, checked once.
//!
//! Keys, realms, operations and the like are stored, logged and shown on consoles. They are checked here, where
//! they enter, so that nothing inside has to ask again.

use std::sync::Arc;

use thiserror::Error;

/// What a piece of text may look like.
pub(crate) struct Rule {
    pub(crate) part: &'static str,
    pub(crate) min_bytes: usize,
    pub(crate) max_bytes: usize,
    pub(crate) ascii_only: bool,
    pub(crate) outer_spaces: bool,
}

/// Text that breaks a limit; the message names the part and the limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// There is less text than the part needs.
    #[error("{part} is empty")]
    Empty {
        /// Which part, as the message says it.
        part: &'static str,
    },
    /// There is more text than the part may hold.
    #[error("{part} is {bytes} bytes long, the limit is {limit}")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// How long the text is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A character that the part may not hold.
    #[error("{part} has the character {found:?} at byte {at}; allowed are {allowed}")]
    Character {
        /// Which part.
        part: &'static str,
        /// The character.
        found: char,
        /// Where it stands, counted in bytes from 0.
        at: usize,
        /// What would be allowed.
        allowed: &'static str,
    },
    /// A space before or behind the text.
    #[error("{part} begins or ends with a space")]
    OuterSpace {
        /// Which part.
        part: &'static str,
    },
}

impl Rule {
    /// The text as it is, if it keeps the rule.
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
        // Most text is such that no rule refuses a character of it, and that is seen faster.
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

/// Text for people that may be shortened but never refused: control characters become spaces, and what is over
/// the limit is cut off.
pub(crate) fn shorten(text: &str, max_bytes: usize) -> Arc<str> {
    // `str::floor_char_boundary` needs Rust 1.91, newer than everything else here.
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
