use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::BTreeSet,
    fmt,
    hash::{Hash, Hasher},
};

use serde::{Deserialize, Serialize, de::IntoDeserializer};

use super::{is_default, nullable};
use crate::Timestamp;

/// Keeps pods away from a node unless they tolerate it. When it was added makes it no other taint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value.
    #[serde(default, skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub value: String,
    /// What happens to pods that do not tolerate it.
    pub effect: TaintEffect,
    /// When it was added to its node, where that is written: what tolerates it for a time counts from then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub time_added: Option<Timestamp>,
}

impl Taint {
    /// A taint of these three parts.
    pub fn new(key: impl Into<String>, value: impl Into<String>, effect: TaintEffect) -> Self {
        Self { key: key.into(), value: value.into(), effect, time_added: None }
    }

    fn parts(&self) -> (&str, &str, TaintEffect) {
        (&self.key, &self.value, self.effect)
    }
}

impl PartialEq for Taint {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Taint {}

impl PartialOrd for Taint {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Taint {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl Hash for Taint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect.name())
    }
}

/// What a [`Taint`] does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// They are not placed on the node.
    NoSchedule,
    /// They are placed there only if there is no better place.
    PreferNoSchedule,
    /// They are not placed on the node, and leave if they are there.
    NoExecute,
}

impl TaintEffect {
    /// The word that Kubernetes has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// Lets a pod onto nodes with a matching taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Toleration {
    /// The key; empty with [`TolerationOperator::Exists`] means every key.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub key: String,
    /// How the value is compared.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub operator: TolerationOperator,
    /// The value.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    pub value: String,
    /// The effect; none means every effect.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "empty_is_none")]
    pub effect: Option<TaintEffect>,
}

/// How a [`Toleration`] compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TolerationOperator {
    /// The values are equal.
    #[default]
    #[serde(alias = "")]
    Equal,
    /// Any value will do.
    Exists,
}

/// Kubernetes writes "every effect" as an absent or as an empty text.
fn empty_is_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<TaintEffect>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(deserializer)?.unwrap_or_default();
    if text.is_empty() { Ok(None) } else { TaintEffect::deserialize(text.into_deserializer()).map(Some) }
}

impl Toleration {
    /// Tolerates every taint.
    pub fn everything() -> Self {
        Self { operator: TolerationOperator::Exists, ..Self::default() }
    }

    /// Tolerates every taint of this key.
    pub fn of_key(key: impl Into<String>) -> Self {
        Self { key: key.into(), ..Self::everything() }
    }

    /// Whether this lets a pod onto a node with `taint`, by the rules of the kube-scheduler.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let key_matches =
            if self.key.is_empty() { self.operator == TolerationOperator::Exists } else { self.key == taint.key };
        key_matches
            && (self.operator == TolerationOperator::Exists || self.value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }

    /// What tolerates the taints that both of two tolerate, if there can be any.
    fn and(&self, other: &Self) -> Option<Self> {
        let tolerates_none = |t: &Self| t.key.is_empty() && t.operator == TolerationOperator::Equal;
        let keys_agree = self.key.is_empty() || other.key.is_empty() || self.key == other.key;
        let effect = match (self.effect, other.effect) {
            (Some(one), Some(another)) if one != another => return None,
            (one, another) => one.or(another),
        };
        let exact = [self, other].into_iter().filter(|t| t.operator == TolerationOperator::Equal);
        let mut values = exact.map(|t| &t.value);
        let value = values.next();
        let values_agree = values.all(|another| Some(another) == value);
        if !keys_agree || !values_agree || tolerates_none(self) || tolerates_none(other) {
            return None;
        }
        let key = if self.key.is_empty() { other.key.clone() } else { self.key.clone() };
        let operator = if value.is_some() { TolerationOperator::Equal } else { TolerationOperator::Exists };
        Some(Self { key, operator, value: value.cloned().unwrap_or_default(), effect })
    }
}

/// What tolerates exactly the taints that both lists tolerate.
pub(crate) fn tolerated_by_both(ours: &[Toleration], theirs: &[Toleration]) -> Vec<Toleration> {
    if ours == theirs {
        return ours.to_vec();
    }
    let pairs = ours.iter().flat_map(|one| theirs.iter().filter_map(|another| one.and(another)));
    let both: BTreeSet<Toleration> = pairs.collect();
    both.into_iter().collect()
}

/// The first of `taints` that none of `tolerations` lets a pod past, or `Ok` if there is none.
///
/// [`TaintEffect::PreferNoSchedule`] counts only if `with_preferences`.
pub fn tolerates_all<'t>(
    tolerations: &[Toleration],
    taints: &'t [Taint],
    with_preferences: bool,
) -> Result<(), &'t Taint> {
    let counts = |t: &&Taint| with_preferences || t.effect != TaintEffect::PreferNoSchedule;
    match taints.iter().filter(counts).find(|taint| !tolerations.iter().any(|t| t.tolerates(taint))) {
        Some(taint) => Err(taint),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_match_as_the_scheduler_matches() {
        let taint = Taint::new("dedicated", "gpu", TaintEffect::NoSchedule);
        let read = |json: &str| serde_json::from_str::<Toleration>(json).expect(json);
        for (json, expected) in [
            (r#"{"operator":"Exists"}"#, true),
            (r#"{"key":"dedicated","operator":"Exists"}"#, true),
            (r#"{"key":"dedicated","value":"gpu"}"#, true),
            (r#"{"key":"dedicated","operator":"Equal","value":"gpu","effect":"NoSchedule"}"#, true),
            (r#"{"key":"dedicated","value":"cpu"}"#, false),
            (r#"{"key":"other","operator":"Exists"}"#, false),
            (r#"{"key":"dedicated","operator":"Exists","effect":"NoExecute"}"#, false),
            (r#"{"value":"gpu"}"#, false),
            (r#"{"key":"dedicated","operator":"","value":"gpu","effect":""}"#, true),
            (r#"{"operator":"Exists","effect":null}"#, true),
        ] {
            assert_eq!(read(json).tolerates(&taint), expected, "{json}");
        }
        assert!(serde_json::from_str::<Toleration>(r#"{"operator":"Maybe"}"#).is_err());
        assert!(serde_json::from_str::<Toleration>(r#"{"operator":"Exists","effect":"Never"}"#).is_err());
    }

    #[test]
    fn both_tolerate_what_each_tolerates() {
        let effects = [None, Some(TaintEffect::NoSchedule), Some(TaintEffect::NoExecute)];
        let (mut tolerations, mut taints) = (Vec::new(), Vec::new());
        for key in ["", "a", "b"] {
            for value in ["", "v", "w"] {
                for effect in effects {
                    for operator in [TolerationOperator::Equal, TolerationOperator::Exists] {
                        tolerations.push(Toleration { key: key.to_owned(), operator, value: value.to_owned(), effect });
                    }
                    taints.extend(effect.filter(|_| !key.is_empty()).map(|effect| Taint::new(key, value, effect)));
                }
            }
        }
        for (one, another) in tolerations.iter().flat_map(|one| tolerations.iter().map(move |another| (one, another))) {
            let both = tolerated_by_both(std::slice::from_ref(one), std::slice::from_ref(another));
            for taint in &taints {
                let expected = one.tolerates(taint) && another.tolerates(taint);
                assert_eq!(both.iter().any(|t| t.tolerates(taint)), expected, "{one:?} and {another:?} of {taint}");
            }
        }
    }

    #[test]
    fn preferences_count_when_asked() {
        let taints = [Taint::new("slow", "", TaintEffect::PreferNoSchedule)];
        assert_eq!(tolerates_all(&[], &taints, false), Ok(()));
        assert_eq!(tolerates_all(&[], &taints, true), Err(&taints[0]));
        assert_eq!(taints[0].to_string(), "slow:PreferNoSchedule");
    }
}
