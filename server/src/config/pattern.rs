//! Which paths a route covers.

use std::fmt;
use std::str::FromStr;

/// A pattern of paths: `/charges`, `/orders/{id}/lines`, `/v1/*`.
///
/// `{name}` stands for one segment, whatever it is called and unless it is empty; `*` at the end stands for all the rest.
/// A path is compared as it was sent: nothing is decoded, and no `//` or `..` is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    parts: Vec<Part>,
    rest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Same(String),
    Any,
}

impl Pattern {
    /// Whether the route covers this path.
    pub(crate) fn covers(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut segments = path.split('/');
        for part in &self.parts {
            let fits = segments.next().is_some_and(|segment| match part {
                Part::Same(same) => same == segment,
                Part::Any => !segment.is_empty(),
            });
            if !fits {
                return false;
            }
        }
        self.rest || segments.next().is_none()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path =
            text.strip_prefix('/').ok_or_else(|| format!("path `{text}` does not begin with a slash"))?;
        let (path, rest) = match path.strip_suffix('*') {
            Some("") => (None, true),
            Some(path) => {
                let path = path
                    .strip_suffix('/')
                    .ok_or_else(|| format!("path `{text}`: `*` stands for whole segments"))?;
                (Some(path), true)
            }
            None => (Some(path), false),
        };
        let part = |segment: &str| match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) if !name.is_empty() && !name.contains(['{', '}', '*']) => Ok(Part::Any),
            _ if segment.contains(['{', '}', '*']) => {
                Err(format!("path `{text}`: a segment is either text or `{{name}}`, and `*` comes last"))
            }
            _ if segment.bytes().any(|byte| byte <= b' ' || byte >= 0x7f || byte == b'?' || byte == b'#') => {
                Err(format!("path `{text}` holds a character that no path has; encode it as %XX"))
            }
            _ => Ok(Part::Same(segment.to_owned())),
        };
        let parts = path.map(|path| path.split('/').map(part).collect()).transpose()?.unwrap_or_default();
        Ok(Self { text: text.to_owned(), parts, rest })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, path: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().covers(path)
    }

    #[test]
    fn segments_are_compared_one_by_one() {
        assert!(covers("/charges", "/charges"));
        assert!(!covers("/charges", "/charges/"));
        assert!(!covers("/charges", "/chargesx"));
        assert!(!covers("/charges", "//charges"));
        assert!(!covers("/charges", "/%63harges"));
        assert!(covers("/", "/"));
        assert!(!covers("/", "/a"));
        assert!(covers("/orders/{id}/lines", "/orders/7/lines"));
        assert!(!covers("/orders/{id}/lines", "/orders//lines"));
        assert!(!covers("/orders/{id}/lines", "/orders/7"));
    }

    #[test]
    fn a_star_stands_for_the_rest() {
        assert!(covers("/*", "/"));
        assert!(covers("/*", "/a/b"));
        assert!(covers("/v1/*", "/v1/"));
        assert!(covers("/v1/*", "/v1/a/b"));
        assert!(covers("/v1/*", "/v1"));
        assert!(!covers("/v1/*", "/v10"));
        assert!(!covers("/*", "*"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "charges", "/a*", "/*/a", "/{a}b", "/{}", "/a b", "/a?b", "/{a*}"] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad}");
        }
    }
}
