use super::*;
use Begun::{AfterCleanEnd, AfterUncleanEnd, Marked};

fn reach(token: u64, first: u64, begun: Begun, before: Option<Reach>, now: Option<Epoch>) -> Option<Reach> {
    let first = FencingToken(first);
    let succession = Succession { first, sibling: true };
    Reach::of(FencingToken(token), succession, begun, before, now)
}

#[test]
fn only_a_holder_that_knows_the_pods_since_the_lineage_began_may_confirm_their_end() {
    let (one, two) = (Some(Epoch::test(1)), Some(Epoch::test(2)));
    let since = |reach: Option<Reach>| reach.unwrap().since;
    let began = reach(7, 7, AfterUncleanEnd, None, one);
    assert_eq!(since(began), one, "the first lease of a lineage");
    assert_eq!(
        reach(7, 7, AfterUncleanEnd, None, None),
        None,
        "the pods are not known yet"
    );
    assert_eq!(
        since(reach(9, 7, AfterUncleanEnd, began, two)),
        one,
        "of the same lineage"
    );
    assert_eq!(since(reach(9, 7, AfterUncleanEnd, None, two)), None, "an adopter");
    assert_eq!(
        since(reach(9, 8, AfterUncleanEnd, began, two)),
        None,
        "of another lineage"
    );
    let adopted = reach(9, 7, AfterUncleanEnd, None, two);
    assert_eq!(
        since(reach(11, 7, AfterUncleanEnd, adopted, two)),
        None,
        "after an adopter"
    );
    assert_eq!(
        since(reach(12, 7, AfterCleanEnd, adopted, two)),
        two,
        "after a confirmed end"
    );
    for (first, what) in [
        (7, "of a lineage that began with it"),
        (5, "of an earlier lineage"),
    ] {
        assert_eq!(
            since(reach(7, first, Marked, None, two)),
            None,
            "marked before, {what}"
        );
    }
    let marked = reach(7, 7, Marked, None, None);
    assert_eq!(
        since(marked),
        None,
        "marked before, and the pods are not known yet"
    );
    assert_eq!(
        since(reach(9, 7, AfterUncleanEnd, marked, two)),
        None,
        "after a lease that was marked before"
    );
}
