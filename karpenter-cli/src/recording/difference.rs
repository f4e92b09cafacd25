use std::fmt;

use karpenter_core::Timestamp;
use serde_json::Value;

/// The longest text of a value in an explanation, in characters.
const MAX_CHARS: usize = 200;

/// The first thing for which an engine does not ask as it did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// When.
    pub at: Timestamp,
    /// How many events it had been told by then.
    pub events: u64,
    /// Which request it is, from 1.
    pub request: usize,
    /// What was asked for then; `None` if nothing more was.
    pub then: Option<Value>,
    /// What is asked for now; `None` if nothing more is.
    pub now: Option<Value>,
}

impl Difference {
    /// Between two lists of requests that are not the same text.
    pub(super) fn between(at: Timestamp, events: u64, then: &str, now: &str) -> Self {
        let list = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
        let (then, now) = (list(then), list(now));
        let same = then.iter().zip(&now).take_while(|(then, now)| then == now).count();
        let request = same + 1;
        Self { at, events, request, then: then.into_iter().nth(same), now: now.into_iter().nth(same) }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, events, request, then, now } = self;
        write!(f, "the first difference is at {at}, after {events} events, in request {request}: ")?;
        match (then, now) {
            (Some(then), Some(now)) => {
                let (then_name, now_name) = (name(then), name(now));
                if then_name != now_name {
                    return write!(f, "then {then_name}, now {now_name}");
                }
                match first_difference(then, now, String::new()) {
                    Some((path, then, now)) => write!(f, "{then_name}: {path} was {then}, and is {now}"),
                    None => write!(f, "{then_name} is written in another way"),
                }
            }
            (Some(then), None) => write!(f, "then {}, now nothing more", name(then)),
            (None, Some(now)) => write!(f, "then nothing more, now {}", name(now)),
            (None, None) => write!(f, "the requests are written in another way"),
        }
    }
}

/// What a request is about: the action and the object.
fn name(request: &Value) -> String {
    let action = &request["action"];
    let Some((kind, body)) = action.as_object().and_then(|fields| fields.iter().next()) else {
        return short(action);
    };
    let known = [&body["metadata"]["name"], &body["name"], &body["pod"], &body["reason"], body];
    let object = known.into_iter().find_map(Value::as_str);
    object.map_or_else(|| kind.clone(), |object| format!("{kind} {object}"))
}

/// The first place at which two values differ, with what is there.
fn first_difference(then: &Value, now: &Value, path: String) -> Option<(String, String, String)> {
    match (then, now) {
        _ if then == now => None,
        (Value::Object(then), Value::Object(now)) => {
            let keys: std::collections::BTreeSet<&String> = then.keys().chain(now.keys()).collect();
            keys.into_iter().find_map(|key| {
                let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let (then, now) = (then.get(key), now.get(key));
                first_difference(then.unwrap_or(&Value::Null), now.unwrap_or(&Value::Null), at)
            })
        }
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
            let mut pairs = then.iter().zip(now).enumerate();
            pairs.find_map(|(index, (then, now))| first_difference(then, now, format!("{path}[{index}]")))
        }
        _ => Some((path, short(then), short(now))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= MAX_CHARS { text } else { text.chars().take(MAX_CHARS).collect::<String>() + "..." }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(then: &str, now: &str) -> String {
        let text = Difference::between(Timestamp::from_millis(0), 7, then, now).to_string();
        text.strip_prefix("the first difference is at 1970-01-01T00:00:00Z, after 7 events, in request ")
            .unwrap()
            .to_owned()
    }

    #[test]
    fn the_first_difference_is_named() {
        let write = |name: &str, status: &str| {
            format!(
                r#"{{"id":1,"action":{{"UpdateClaim":{{"metadata":{{"name":"{name}"}},"status":{{"conditions":[{{"status":"{status}"}}]}}}}}}}}"#
            )
        };
        let list = |requests: &[String]| format!("[{}]", requests.join(","));
        let (one, two) = (write("a", "True"), write("b", "True"));
        assert_eq!(
            explained(&list(&[one.clone(), two.clone()]), &list(&[one.clone(), write("b", "False")])),
            r#"2: UpdateClaim b: action.UpdateClaim.status.conditions[0].status was "True", and is "False""#
        );
        assert_eq!(explained(&list(std::slice::from_ref(&one)), "[]"), "1: then UpdateClaim a, now nothing more");
        assert_eq!(explained("[]", &list(std::slice::from_ref(&one))), "1: then nothing more, now UpdateClaim a");
        assert_eq!(explained(&list(&[one]), &list(&[two])), "1: then UpdateClaim a, now UpdateClaim b");
        assert_eq!(explained(r#"[{"id":3,"action":"List"}]"#, "[]"), "1: then \"List\", now nothing more");
    }
}
