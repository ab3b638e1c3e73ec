//! Evaluates the checks of a status. Pure.

use serde_json::Value;

use super::{
    fields::{shown, value_at},
    hold::Shown,
};
use crate::{api::plan::StatusCheck, targets::observed_generation::observed_generation};

/// Whether a status is about the present generation of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Present,
    Outdated,
    Unknown,
}

/// Returns the result of the checks; `None` without checks. `annotates` is true if annotations are switched:
/// they leave the generation as it is, so no generation proves that the controller saw them.
pub(super) fn status_of(object: &Value, checks: &[StatusCheck], annotates: bool) -> Option<Shown> {
    let mut age = None;
    for check in checks {
        match holds(object, check) {
            Ok(observed) => age = age.max(Some(age_of(object, observed, annotates))),
            Err(text) => return Some(Shown::Running(text)),
        }
    }
    Some(match age? {
        Age::Present => Shown::Stopped,
        Age::Outdated => Shown::Outdated,
        Age::Unknown => Shown::Undated,
    })
}

/// Returns the generation to which this part of the status refers, if it names one; or the text of a check
/// that does not hold.
fn holds(object: &Value, check: &StatusCheck) -> Result<Option<i64>, String> {
    let observed = observed_generation(object["status"].get("observedGeneration")).number();
    match check {
        StatusCheck::Field { path, equals } => {
            let found = value_at(object, path).unwrap_or_default();
            if found == Some(equals) {
                return Ok(observed);
            }
            Err(format!("{path} is {}, not {equals}", shown(found)))
        }
        StatusCheck::Condition { kind, status, reason } => {
            let all = object["status"]["conditions"].as_array();
            let found = all
                .into_iter()
                .flatten()
                .find(|condition| condition["type"] == kind.as_str());
            let Some(found) = found else {
                return Err(format!("it has no condition {kind}"));
            };
            if found["status"] != status.name() {
                let (found, wanted) = (shown(found.get("status")), status.name());
                return Err(format!("condition {kind} is {found}, not {wanted}"));
            }
            if let Some(reason) = reason
                && found["reason"] != reason.as_str()
            {
                let found = shown(found.get("reason"));
                return Err(format!("condition {kind} has the reason {found}, not {reason}"));
            }
            let own = observed_generation(found.get("observedGeneration"));
            Ok(own.number().or(observed))
        }
    }
}

fn age_of(object: &Value, observed: Option<i64>, annotates: bool) -> Age {
    match (observed, object["metadata"]["generation"].as_i64()) {
        (Some(observed), Some(present)) if observed < present => Age::Outdated,
        (Some(_), Some(_)) if !annotates => Age::Present,
        _ => Age::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{pointer::Pointer, target::ConditionStatus};

    fn state(equals: &str) -> StatusCheck {
        StatusCheck::Field {
            path: Pointer::parse("/status/state").unwrap(),
            equals: json!(equals),
        }
    }

    fn paused(reason: Option<&str>) -> StatusCheck {
        StatusCheck::Condition {
            kind: "Synced".into(),
            status: ConditionStatus::False,
            reason: reason.map(str::to_owned),
        }
    }

    fn object(observed: Option<i64>, status: &str, of_condition: Option<i64>) -> Value {
        json!({
            "metadata": {"generation": 3},
            "status": {
                "observedGeneration": observed, "state": "SUSPENDED",
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "Synced", "status": status, "reason": "ReconcilePaused", "observedGeneration": of_condition},
                ],
            },
        })
    }

    #[test]
    fn status_shows_a_stop_for_the_generation_that_it_names() {
        let field = [state("SUSPENDED")];
        let condition = [paused(Some("ReconcilePaused"))];
        let both = [state("SUSPENDED"), paused(None)];
        for (object, checks, wanted) in [
            (object(Some(3), "False", None), &field[..], Shown::Stopped),
            (object(Some(4), "False", None), &field, Shown::Stopped),
            (object(Some(2), "False", None), &field, Shown::Outdated),
            (object(None, "False", None), &field, Shown::Undated),
            // The generation of the condition takes precedence over that of the status.
            (object(Some(3), "False", Some(2)), &condition, Shown::Outdated),
            (object(Some(2), "False", Some(3)), &condition, Shown::Stopped),
            (object(Some(3), "False", None), &condition, Shown::Stopped),
            (object(None, "False", None), &condition, Shown::Undated),
            // The weakest part counts.
            (object(None, "False", Some(3)), &both, Shown::Undated),
            (object(Some(2), "False", Some(3)), &both, Shown::Outdated),
            (object(Some(3), "False", Some(3)), &both, Shown::Stopped),
        ] {
            assert_eq!(
                status_of(&object, checks, false),
                Some(wanted),
                "{object} {checks:?}"
            );
        }
        let annotated = status_of(&object(Some(3), "False", None), &condition, true);
        assert_eq!(
            annotated,
            Some(Shown::Undated),
            "an annotation changes no generation"
        );
        let service = json!({"metadata": {}, "status": {"state": "SUSPENDED", "observedGeneration": 9}});
        assert_eq!(
            status_of(&service, &field, false),
            Some(Shown::Undated),
            "no generation"
        );
        assert_eq!(status_of(&service, &[], false), None);
    }

    #[test]
    fn check_that_does_not_hold_is_named() {
        let shows = |object: &Value, check| match status_of(object, &[check], false) {
            Some(Shown::Running(text)) => text,
            other => panic!("{other:?}"),
        };
        let found = object(Some(3), "True", None);
        assert_eq!(
            shows(&found, state("FAILED")),
            "/status/state is \"SUSPENDED\", not \"FAILED\""
        );
        assert_eq!(
            shows(&json!({}), state("FAILED")),
            "/status/state is no value, not \"FAILED\""
        );
        assert_eq!(
            shows(&json!({"status": []}), state("FAILED")),
            "/status/state is no value, not \"FAILED\""
        );
        assert_eq!(
            shows(&found, paused(None)),
            "condition Synced is \"True\", not False"
        );
        let found = object(Some(3), "False", None);
        assert_eq!(
            shows(&found, paused(Some("Other"))),
            "condition Synced has the reason \"ReconcilePaused\", not Other"
        );
        assert_eq!(shows(&json!({}), paused(None)), "it has no condition Synced");
    }
}
