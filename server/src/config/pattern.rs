//! The path patterns of routes.

use std::fmt;
use std::str::FromStr;

/// A pattern of paths: `/charges`, `/orders/{id}/lines`, `/v1/*`.
///
/// `{name}` matches one non-empty segment; `*` at the end matches the rest of the path. A path is
/// compared as it was sent, except for [`Spellings`]: it is not decoded, and `//` and `..` are not
/// resolved.
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

/// The spellings of a path that are the same path for a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spellings {
    /// A slash at the end is ignored.
    pub(crate) ignore_slash: bool,
    /// Upper and lower case are equal in the literal parts of a pattern.
    pub(crate) ignore_case: bool,
}

impl Spellings {
    pub(crate) fn all_count(self) -> bool {
        self == Self::default()
    }

    /// The path after its first slash, without a last slash if that is ignored.
    fn trimmed(self, path: &str) -> Option<&str> {
        let path = path.strip_prefix('/')?;
        let shorter = path.strip_suffix('/').filter(|shorter| self.ignore_slash && !shorter.is_empty());
        Some(shorter.unwrap_or(path))
    }

    fn is_same(self, one: &str, other: &str) -> bool {
        if self.ignore_case { one.eq_ignore_ascii_case(other) } else { one == other }
    }
}

impl Pattern {
    /// A pattern that matches all paths.
    pub(crate) fn all() -> Self {
        Self { text: "/*".to_owned(), parts: Vec::new(), rest: true }
    }

    /// Returns `true` if the route covers this path.
    pub(crate) fn covers(&self, path: &str, spellings: Spellings) -> bool {
        let Some(path) = spellings.trimmed(path) else { return false };
        let mut segments = path.split('/');
        for part in self.parts(spellings) {
            let fits = segments.next().is_some_and(|segment| match part {
                Part::Same(same) => spellings.is_same(same, segment),
                Part::Any => !segment.is_empty(),
            });
            if !fits {
                return false;
            }
        }
        self.rest || segments.next().is_none()
    }

    /// The canonical spelling of a covered path: literal parts as in the pattern, the other parts
    /// as they were sent.
    pub(crate) fn spell(&self, path: &str, spellings: Spellings) -> String {
        let sent = spellings.trimmed(path).unwrap_or(path);
        let mut spelled = String::with_capacity(path.len());
        let parts = self.parts(spellings).iter().map(Some).chain(std::iter::repeat(None));
        for (segment, part) in sent.split('/').zip(parts) {
            spelled.push('/');
            spelled.push_str(match part {
                Some(Part::Same(same)) => same,
                Some(Part::Any) | None => segment,
            });
        }
        spelled
    }

    /// The segments, without an empty last one if that is ignored.
    fn parts(&self, spellings: Spellings) -> &[Part] {
        match &*self.parts {
            [parts @ .., Part::Same(last)]
                if spellings.ignore_slash && last.is_empty() && !parts.is_empty() =>
            {
                parts
            }
            parts => parts,
        }
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
        pattern.parse::<Pattern>().unwrap().covers(path, Spellings::default())
    }

    #[test]
    fn spellings_that_do_not_count_are_one_path() {
        let spelled = |pattern: &str, path: &str| {
            let (pattern, spellings) =
                (pattern.parse::<Pattern>().unwrap(), Spellings { ignore_slash: true, ignore_case: true });
            pattern.covers(path, spellings).then(|| pattern.spell(path, spellings))
        };
        for path in ["/charges", "/charges/", "/Charges", "/CHARGES/"] {
            assert_eq!(spelled("/charges", path).as_deref(), Some("/charges"), "{path}");
            assert_eq!(spelled("/charges/", path).as_deref(), Some("/charges"), "{path}");
        }
        for path in ["/charges//", "//charges", "/charge", "/%63harges", "/charges/x", "charges"] {
            assert_eq!(spelled("/charges", path), None, "{path}");
        }
        assert_eq!(spelled("/Orders/{id}", "/orders/Ab/").as_deref(), Some("/Orders/Ab"));
        assert_eq!(spelled("/v1/*", "/V1/Ab/c/").as_deref(), Some("/v1/Ab/c"));
        assert_eq!(spelled("/", "/").as_deref(), Some("/"));
        assert_eq!(spelled("/", "//"), None);
        assert_eq!(spelled("/*", "/a/").as_deref(), Some("/a"));
        let slash = Spellings { ignore_slash: true, ignore_case: false };
        assert!(!"/charges".parse::<Pattern>().unwrap().covers("/Charges", slash));
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
