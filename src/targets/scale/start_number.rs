//! Decides what a start does about the number of replicas that an object has. Pure.

use super::subresource::Owner;

/// The numbers of an object and of its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The number that the object asks for.
    pub(super) wanted: i32,
    pub(super) active: i32,
    pub(super) standby: i32,
    /// The earlier value of `activeReplicas`.
    pub(super) before: Option<i32>,
    /// The number that this process wrote last into this object.
    pub(super) written: Option<i32>,
}

/// What a start does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StartMove {
    /// The object runs with its number.
    Keep,
    /// The object runs with the number of this manager, which is reported.
    LeaveTo(String),
    /// This manager keeps the object stopped.
    Conflict(String),
    Write,
    ReadAgain,
}

/// Decides on a number other than `activeReplicas`. A start lowers no number that the operator did not write.
pub(super) fn start_move(numbers: Numbers, owner: Owner) -> StartMove {
    let Numbers { wanted, active, .. } = numbers;
    let runs = wanted > numbers.standby;
    match owner {
        Owner::Late => StartMove::ReadAgain,
        Owner::Other(owner) if runs => StartMove::LeaveTo(owner),
        Owner::Other(owner) => StartMove::Conflict(owner),
        Owner::Own => StartMove::Write,
        Owner::Undeclared(_) | Owner::Unknown if !runs => StartMove::Write,
        Owner::Undeclared(_) if wanted < active => StartMove::Write,
        Owner::Undeclared(Some(creator)) => StartMove::LeaveTo(creator),
        Owner::Undeclared(None) => StartMove::Keep,
        // A number that no manager owns is the earlier `activeReplicas`, or that of an unknown client.
        Owner::Unknown if numbers.before != Some(wanted) => StartMove::Keep,
        Owner::Unknown if wanted < active || numbers.written == Some(wanted) => StartMove::Write,
        Owner::Unknown => StartMove::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        wanted: 3,
        active: 1,
        standby: 0,
        before: None,
        written: None,
    };

    fn by(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn start_lowers_no_number_that_the_operator_did_not_write() {
        let creator = Owner::Undeclared(Some(by("kubectl-create")));
        for (owner, numbers, wanted) in [
            (creator, NUMBERS, StartMove::LeaveTo(by("kubectl-create"))),
            (Owner::Undeclared(None), NUMBERS, StartMove::Keep),
            (Owner::Other(by("flux")), NUMBERS, StartMove::LeaveTo(by("flux"))),
            (Owner::Unknown, NUMBERS, StartMove::Keep),
            // A client may have set the number that was declared before.
            (
                Owner::Unknown,
                Numbers {
                    before: Some(3),
                    ..NUMBERS
                },
                StartMove::Keep,
            ),
            (
                Owner::Unknown,
                Numbers {
                    before: Some(3),
                    written: Some(3),
                    ..NUMBERS
                },
                StartMove::Write,
            ),
            (Owner::Own, NUMBERS, StartMove::Write),
            (Owner::Late, NUMBERS, StartMove::ReadAgain),
        ] {
            let case = format!("{owner:?} {numbers:?}");
            assert_eq!(start_move(numbers, owner), wanted, "{case}");
        }
    }

    #[test]
    fn default_and_earlier_number_are_raised() {
        let raises = Numbers {
            wanted: 1,
            active: 2,
            ..NUMBERS
        };
        let edited = Numbers {
            before: Some(1),
            ..raises
        };
        for (owner, numbers, wanted) in [
            (Owner::Undeclared(None), raises, StartMove::Write),
            (Owner::Undeclared(Some(by("helm"))), raises, StartMove::Write),
            (Owner::Own, raises, StartMove::Write),
            (Owner::Unknown, raises, StartMove::Keep),
            (Owner::Unknown, edited, StartMove::Write),
            (Owner::Other(by("flux")), raises, StartMove::LeaveTo(by("flux"))),
        ] {
            let case = format!("{owner:?} {numbers:?}");
            assert_eq!(start_move(numbers, owner), wanted, "{case}");
        }
    }

    #[test]
    fn stopped_object_is_started_unless_a_manager_declares_its_number() {
        let stopped = Numbers { wanted: 0, ..NUMBERS };
        for (owner, wanted) in [
            (Owner::Undeclared(None), StartMove::Write),
            (Owner::Undeclared(Some(by("kubectl-create"))), StartMove::Write),
            (Owner::Unknown, StartMove::Write),
            (Owner::Own, StartMove::Write),
            (Owner::Other(by("flux")), StartMove::Conflict(by("flux"))),
        ] {
            assert_eq!(start_move(stopped, owner.clone()), wanted, "{owner:?}");
        }
    }
}
