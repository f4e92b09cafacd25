use serde::{Deserialize, Serialize};

/// What a list of things is narrowed to: those whose attribute `name` has one of the values, of which `*` and `?` are
/// wildcards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Filter {
    /// The attribute, such as `tag:team` or `state`.
    pub name: String,
    /// The values, any of which will do.
    pub values: Vec<String>,
}

impl Filter {
    /// An attribute that has one of these values.
    pub fn new<V: Into<String>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self { name: name.into(), values: values.into_iter().map(Into::into).collect() }
    }

    /// A tag of this key and value; the value `*` means that any will do.
    pub fn tag(key: &str, value: &str) -> Self {
        if value == "*" { Self::new("tag-key", [key]) } else { Self::new(format!("tag:{key}"), [value]) }
    }

    /// Whether a value meets the filter.
    pub fn admits(&self, value: &str) -> bool {
        self.values.iter().any(|pattern| is_like(pattern.as_bytes(), value.as_bytes()))
    }
}

/// Whether a text is like a pattern, in which `*` is any text and `?` any character.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    // The last star, and the text that it has taken so far: a longer one is tried when the rest does not fit.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, t) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        let filter = Filter::new("name", ["amazon-eks-*-v?", "own"]);
        for name in ["amazon-eks-node-1.31-v1", "amazon-eks--v2", "own", "amazon-eks-v-v-v3"] {
            assert!(filter.admits(name), "{name}");
        }
        for name in ["amazon-eks-v1", "owner", "", "amazon-eks-x-v10"] {
            assert!(!filter.admits(name), "{name}");
        }
    }

    #[test]
    fn a_star_alone_asks_for_the_key_of_a_tag() {
        assert_eq!(Filter::tag("team", "*"), Filter::new("tag-key", ["team"]));
        assert_eq!(Filter::tag("team", "web"), Filter::new("tag:team", ["web"]));
    }
}
