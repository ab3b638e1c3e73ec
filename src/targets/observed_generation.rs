//! Reads the generation that a controller reports to have seen.

use serde_json::Value;

/// A field `observedGeneration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObservedGeneration {
    Absent,
    Number(i64),
    /// Neither a number nor a string with one: it is not known whether the controller has seen the object.
    Unreadable,
}

impl ObservedGeneration {
    pub(super) const fn number(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// Reads the field. Some controllers, such as Argo Rollouts, write it as a string.
pub(super) fn observed_generation(field: Option<&Value>) -> ObservedGeneration {
    let number = match field {
        None | Some(Value::Null) => return ObservedGeneration::Absent,
        Some(Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_i64(),
    };
    number.map_or(ObservedGeneration::Unreadable, ObservedGeneration::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generation_is_read_as_number_or_text() {
        for (field, wanted) in [
            (None, ObservedGeneration::Absent),
            (Some(json!(null)), ObservedGeneration::Absent),
            (Some(json!(5)), ObservedGeneration::Number(5)),
            (Some(json!("5")), ObservedGeneration::Number(5)),
            (Some(json!("5c8f")), ObservedGeneration::Unreadable),
            (Some(json!(1.5)), ObservedGeneration::Unreadable),
            (Some(json!({})), ObservedGeneration::Unreadable),
        ] {
            assert_eq!(observed_generation(field.as_ref()), wanted, "{field:?}");
        }
    }
}
