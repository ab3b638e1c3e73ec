//! What a win shows of the holders before, and which pods its holder knows.

use Begun::{AfterCleanEnd, AfterUncleanEnd, Marked};

use super::*;

fn found(register: &MarkRegister, held: u64) -> Succession {
    Succession::of(register, &here(), held, FencingToken(9))
}

#[test]
fn a_holder_continues_the_lineage_of_its_cluster_and_no_other() {
    let first = |register: &MarkRegister, held| found(register, held).first.0;
    let own = mark(7, 5, &here());
    assert_eq!(first(&own, 7), 5);
    assert_eq!(first(&own, 3), 5);
    // A holder that does not fence, or the fallback after a total loss, came between.
    assert_eq!(first(&own, 8), 9);
    assert_eq!(first(&mark(7, 5, &there()), 7), 9);
    assert_eq!(first(&MarkRegister::Never, 0), 9);
    assert_eq!(first(&MarkRegister::Split(FencingToken(7)), 7), 9);
}

#[test]
fn a_sibling_is_the_cluster_of_the_mark_with_the_greatest_held() {
    let predecessor = |register: &MarkRegister, held| found(register, held).predecessor;
    assert_eq!(predecessor(&mark(7, 5, &here()), 7), Predecessor::Sibling);
    // The mark was written, and `held` is not known.
    assert_eq!(predecessor(&mark(7, 5, &here()), 6), Predecessor::Own);
    for held in [0, 7, 8] {
        assert_eq!(predecessor(&mark(7, 5, &there()), held), Predecessor::Elsewhere);
        assert_eq!(predecessor(&MarkRegister::Never, held), Predecessor::Elsewhere);
    }
}

#[test]
fn a_mark_that_is_older_than_held_or_split_does_not_show_that_no_pod_runs() {
    let split = MarkRegister::Split(FencingToken(7));
    // Of a holder that does not fence, or of a seal after a loss of memory.
    for (register, held) in [(mark(7, 5, &here()), 8), (split.clone(), 7), (split, 0)] {
        let succession = found(&register, held);
        assert_eq!(
            (succession.first.0, succession.predecessor),
            (9, Predecessor::Unknown)
        );
    }
}

/// Since when the holder of `token` knows the pods; `now` is 2.
fn since(token: u64, first: u64, begun: Begun, before: Option<Reach<u64>>) -> Option<Reach<u64>> {
    let token = FencingToken(token);
    let succession = Succession {
        first: FencingToken(first),
        predecessor: if first == token.0 {
            Predecessor::Elsewhere
        } else {
            Predecessor::Sibling
        },
    };
    Reach::of(token, succession, begun, before, Some(2))
}

#[test]
fn only_a_holder_that_knows_the_pods_since_the_lineage_began_may_confirm_their_end() {
    let first = Succession {
        first: FencingToken(7),
        predecessor: Predecessor::Elsewhere,
    };
    let began = Reach::of(FencingToken(7), first, AfterUncleanEnd, None, Some(1));
    let adopted = since(9, 7, AfterUncleanEnd, None);
    let marked = since(7, 7, Marked, None);
    for (reach, expected, what) in [
        (began, Some(1), "the first lease of a lineage"),
        (
            since(9, 7, AfterUncleanEnd, began),
            Some(1),
            "of the same lineage",
        ),
        (adopted, None, "an adopter"),
        (since(9, 8, AfterUncleanEnd, began), None, "of another lineage"),
        (since(11, 7, AfterUncleanEnd, adopted), None, "after an adopter"),
        (
            since(12, 7, AfterCleanEnd, adopted),
            Some(2),
            "after a confirmed end",
        ),
        (marked, None, "marked before, of a lineage that began with it"),
        (
            since(7, 5, Marked, None),
            None,
            "marked before, of an earlier lineage",
        ),
        (
            since(9, 7, AfterUncleanEnd, marked),
            None,
            "after a lease that was marked before",
        ),
    ] {
        assert_eq!(reach.unwrap().since, expected, "{what}");
    }
    let unknown = |begun| Reach::<u64>::of(FencingToken(7), first, begun, None, None);
    assert_eq!(unknown(AfterUncleanEnd), None, "the pods are not known yet");
    assert_eq!(unknown(Marked), marked, "they need not be");
}

#[test]
fn no_end_is_confirmed_in_a_lineage_whose_beginning_does_not_show_that_no_pod_runs() {
    let succession = found(&mark(7, 5, &here()), 8);
    for begun in [AfterUncleanEnd, AfterCleanEnd] {
        let before = since(7, 7, AfterUncleanEnd, None);
        let began = Reach::of(FencingToken(9), succession, begun, before, Some(2));
        assert_eq!(began.unwrap().since, None, "{begun:?}");
        assert_eq!(
            since(11, 9, AfterUncleanEnd, began).unwrap().since,
            None,
            "its sibling"
        );
    }
}
