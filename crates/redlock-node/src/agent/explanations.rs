//! Explains to users why a pod does not start or does not run.

use redlock_core::fence::{Finding, Refusal, Withheld};

/// Explains a refusal. `holder` is the holder of the lock, if the last round has shown one.
pub(super) fn explained(refusal: &Refusal, holder: Option<&str>) -> String {
    let reason = match refusal {
        Refusal::PodGone => {
            return "the pod was deleted: the API server shows no pod object with its UID".to_owned();
        }
        Refusal::PodUnknown => {
            return "the API server did not show whether the pod object still exists; check that the node reaches it"
                .to_owned();
        }
        Refusal::Lost => {
            return "the record of the pod is lost while its processes run: the pod is frozen, and killed after 30 s"
                .to_owned();
        }
        Refusal::NoRound => "the masters have not been read since the call".to_owned(),
        Refusal::Closed => "its holder is stopping its targets, and allows no start".to_owned(),
        Refusal::NotStored => {
            "the guardian did not acknowledge the record; check that the node guardian runs on this node"
                .to_owned()
        }
        Refusal::Finding(finding) => finding_explained(finding),
    };
    match (holder, refusal) {
        (Some(holder), _) => format!("{reason}; it is held by {holder}"),
        (None, Refusal::Finding(Finding::Unheld | Finding::Withheld(_))) => {
            format!("{reason}; the masters that answered show no holder")
        }
        (None, _) => reason,
    }
}

pub(super) fn finding_explained(finding: &Finding) -> String {
    match finding {
        Finding::Permit(_) => "the permit is about to end".to_owned(),
        Finding::Foreign { cluster_uid, .. } => format!("another cluster (UID {cluster_uid}) has marked it"),
        Finding::Unheld => "this cluster does not hold it, or has not marked its lease".to_owned(),
        Finding::ClockStoodStill => "the clock of this node stood still".to_owned(),
        Finding::Withheld(withheld) => match withheld {
            Withheld::NoMajority => "fewer than a majority of the masters answered".to_owned(),
            Withheld::MarkIsOlder { mark, held } => {
                format!("its holder has not marked its lease (mark {mark}, held {held})")
            }
            Withheld::MarkOnMinority => {
                "the mark of its holder is on fewer than a majority of the masters".to_owned()
            }
            Withheld::MarkIsSplit => "the masters show different marks".to_owned(),
            Withheld::Overtaken => "the round was overtaken by later evidence".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::FencingToken;

    use super::*;

    #[test]
    fn a_refusal_names_the_holder_unless_another_reason_is_known() {
        let foreign = Refusal::Finding(Finding::Foreign {
            cluster_uid: "uid-there".into(),
            token: FencingToken(9),
        });
        let marked = "another cluster (UID uid-there) has marked it";
        assert_eq!(explained(&foreign, None), marked);
        let held = explained(&foreign, Some("there"));
        assert_eq!(held, format!("{marked}; it is held by there"));
        let unheld = explained(&Refusal::Finding(Finding::Unheld), None);
        assert!(
            unheld.ends_with("the masters that answered show no holder"),
            "{unheld}"
        );
        for refusal in [Refusal::NoRound, Refusal::Closed, Refusal::PodGone] {
            let text = explained(&refusal, None);
            assert!(!text.contains("no holder"), "{text}");
        }
    }
}
