//! Escaping of stored text for terminals.

use std::fmt::Write;

/// Returns `true` if a terminal would interpret or hide a character: control characters, direction
/// marks, and characters without width.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text as one line for a terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// The text for a terminal, with its own lines.
pub(crate) fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// JSON with the same meaning, escaped for a terminal. Such characters occur in its strings only.
pub(super) fn escaped_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a `String` does not fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The text as one word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.contains(is_unsafe) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    let mut word = "$'".to_owned();
    for c in text.chars() {
        // Writing to a `String` does not fail. Each byte is escaped, because the shell's locale
        // decides the bounds of characters, and in three digits, so that a following digit is not
        // included.
        let _ = match c {
            '\\' | '\'' => write!(word, "\\{c}"),
            c if is_unsafe(c) => {
                c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(word, "\\{byte:03o}"))
            }
            c => write!(word, "{c}"),
        };
    }
    word.push('\'');
    word
}

/// Bytes as readable text; `None` if they are not text.
pub(crate) fn readable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let foreign = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    (!text.contains(foreign)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_hides_is_escaped() {
        assert_eq!(escaped("a\u{1b}[2Jb\u{202e}c\r\n"), "a\\u{1b}[2Jb\\u{202e}c\\r\\n");
        assert_eq!(escaped("naïve e\u{301} 語 \\ \"q\""), "naïve e\u{301} 語 \\ \"q\"");
        assert_eq!(escaped_lines("a\nb\u{7}"), "a\nb\\u{7}");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "a\u{7f}\u{9b}\u{202e}\u{e0041}\n\"語";
        let json = escaped_json(&serde_json::to_string(text).unwrap());
        assert!(!json.contains(is_unsafe), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn a_word_of_a_shell_is_one_word() {
        for (text, word) in [
            ("order-42", "order-42"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's; rm -rf $HOME", r"'it'\''s; rm -rf $HOME'"),
            ("a\u{202e}'b", r"$'a\342\200\256\'b'"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }

    #[test]
    fn text_with_line_ends_is_readable_and_other_controls_are_not() {
        assert_eq!(readable(b"{\n\t\"a\": 1\r\n}"), Some("{\n\t\"a\": 1\r\n}"));
        assert_eq!(readable(b"a\0"), None);
        assert_eq!(readable(b"\x1b[2J"), None);
        assert_eq!(readable(b"\xff"), None);
    }
}
