//! Documents with prices as they are meant.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
    ser::SerializeMap as _,
};

use crate::Error;

/// Billionths in a unit.
const NANO: f64 = 1e9;
/// The largest number of billionths up to which floats are whole numbers.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Any document, with its fields in the order in which they were written and its numbers rounded to billionths: prices are whole
/// billionths, and what comes of adding them up in floats is a little beside them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ordered {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl Ordered {
    /// # Errors
    /// The serializer refuses the document.
    pub(super) fn of(document: &impl Serialize) -> Result<Self, Error> {
        let text = serde_json::to_string(document);
        let read = text.and_then(|text| serde_json::from_str(&text));
        read.map_err(|error| Error::Unprintable { message: error.to_string() })
    }
}

/// The number to the billionth.
fn rounded(number: f64) -> f64 {
    let nano = (number * NANO).round();
    // A float has a zero below zero, which would be printed.
    if nano.abs() < MAX_EXACT { nano / NANO + 0.0 } else { number }
}

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(values) => serializer.collect_seq(values),
            Self::Map(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a document")
            }

            fn visit_unit<E>(self) -> Result<Ordered, E> {
                Ok(Ordered::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Ordered, E> {
                Ok(Ordered::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Ordered, E> {
                Ok(Ordered::Unsigned(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Ordered, E> {
                Ok(Ordered::Signed(value))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Ordered, E> {
                Ok(Ordered::Float(rounded(value)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Ordered, E> {
                Ok(Ordered::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Ordered, A::Error> {
                let mut out = Vec::new();
                while let Some(value) = values.next_element()? {
                    out.push(value);
                }
                Ok(Ordered::List(out))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Ordered, A::Error> {
                let mut out = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    out.push(field);
                }
                Ok(Ordered::Map(out))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn text(document: &impl Serialize) -> String {
        let ordered = Ordered::of(document).expect("a document");
        serde_json::to_string(&ordered).expect("a document")
    }

    #[test]
    fn numbers_are_whole_billionths() {
        let sum: f64 = [0.0704; 4].iter().sum();
        let tenths: f64 = [0.1; 3].iter().sum();
        let numbers = [sum, tenths, 0.3 - tenths, -0.0, 1e-9, 5e-10, 4e-10, 9e9, 1e300, 0.2];
        assert_eq!(text(&numbers), "[0.2816,0.3,0.0,0.0,1e-9,1e-9,0.0,9000000000.0,1e+300,0.2]");
    }

    #[test]
    fn all_else_stays_as_it_is() {
        #[derive(Serialize)]
        struct Mixed {
            z: Option<u64>,
            a: (i64, bool, u64),
            m: BTreeMap<String, Vec<&'static str>>,
        }
        let mixed = Mixed { z: None, a: (-7, true, u64::MAX), m: BTreeMap::from([("ü".to_owned(), vec!["\n", ""])]) };
        assert_eq!(text(&mixed), serde_json::to_string(&mixed).expect("a document"));
        assert_eq!(text(&json!({"a": [], "b": {}})), r#"{"a":[],"b":{}}"#);
    }
}
