//! Tests the condition for the nodes of a fenced lock.

use super::*;
use crate::controller::node_guards::NodeGuards;

#[test]
fn a_fenced_lock_shows_whether_its_nodes_are_guarded() {
    let fenced = plan(&format!("{TARGET}, fencing: Node"));
    let nodes_guarded = |status: &LeaderLockStatus| {
        let (truth, reason) = status_of(&status.conditions, "NodesGuarded");
        let message = status.conditions.iter().find(|c| c.type_ == "NodesGuarded");
        let message = message.map_or_else(String::new, |condition| condition.message.clone());
        (truth.to_owned(), reason.to_owned(), message)
    };
    let both = NodeGuards::test(&[("n1", "node-agent"), ("n1", "node-guardian")]);
    let one = NodeGuards::test(&[("n1", "node-agent")]);
    let unknown = NodeGuards::default();
    let mut last = LeaderLockStatus::default();
    for (nodes, guards, truth, reason, part) in [
        (None, &both, "Unknown", "NotInspected", "not inspected"),
        (
            Some(vec!["n1"]),
            &unknown,
            "Unknown",
            "GuardsNotFollowed",
            "not known",
        ),
        (
            Some(vec!["n1"]),
            &one,
            "False",
            "NotGuarded",
            "node n1 has no ready pod of node-guardian",
        ),
        (Some(vec!["n1"]), &both, "True", "Guarded", "ready on n1"),
        (Some(vec![]), &one, "True", "Guarded", "no pod of the lock runs"),
    ] {
        let mut report = report(TargetState::Active, TargetState::Active, None);
        report.nodes = nodes.map(|nodes| nodes.into_iter().map(str::to_owned).collect());
        last = lock_status(&LockFacts {
            guards,
            ..facts(
                &LeaderLockStatus::default(),
                Ok(&fenced),
                Some(&report),
                Some(holder("eu-1")),
            )
        });
        let found = nodes_guarded(&last);
        assert_eq!((&*found.0, &*found.1), (truth, reason));
        assert!(found.2.contains(part), "{found:?}");
        assert_eq!(status_of(&last.conditions, "Ready"), ("True", "Active"));
    }
    // Only fenced locks have the condition.
    let report = report(TargetState::Active, TargetState::Active, None);
    let unfenced = plan(TARGET);
    let status = lock_status(&facts(&last, Ok(&unfenced), Some(&report), Some(holder("eu-1"))));
    assert!(nodes_guarded(&status).1.is_empty(), "{status:?}");
}
