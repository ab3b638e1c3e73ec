//! S1–S6 as properties of the pure core.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use redlock::lease::{
    Action, Attempt, ClusterId, EndReason, Event, GrantReply, HolderIdentity, LeaseStem, LeaseValue, Loss,
    Machine, Marks, Moment, Nonce, Obstacle, Outcome, Participation, QuorumSize, Round, Sighting, Step,
    Tally, Terms, Verdict, View, Vote, Won, timing,
};

use super::{
    candidate::{cluster, terms},
    clock::MS,
};

fn votes() -> impl Strategy<Value = Vec<(usize, Vote)>> {
    let vote = prop_oneof![Just(Vote::Granted), Just(Vote::Refused), Just(Vote::Unknown)];
    vec((0_usize..8, vote), 0..20)
}

fn sizes() -> impl Strategy<Value = QuorumSize> {
    prop_oneof![Just(3), Just(5), Just(7)].prop_map(|n| QuorumSize::new(n).unwrap())
}

fn value() -> impl Strategy<Value = LeaseValue> {
    ("[a-z][a-z0-9-]{0,20}[a-z0-9]", any::<u128>(), any::<u64>()).prop_map(|(name, nonce, grant)| {
        LeaseValue {
            cluster: ClusterId::new(&name, "uid-1").unwrap(),
            identity: HolderIdentity::parse(&name).unwrap(),
            nonce: Nonce(nonce),
            grant,
        }
    })
}

proptest! {
    #[test]
    fn s1_a_verdict_once_certain_stays(size in sizes(), votes in votes()) {
        let mut tally = Tally::new(size);
        let mut certain = Verdict::Pending;
        for (master, vote) in votes {
            tally.record(master, vote);
            prop_assert!(certain == Verdict::Pending || tally.verdict() == certain);
            certain = tally.verdict();
        }
    }

    #[test]
    fn s1_a_masters_second_vote_never_counts(size in sizes(), votes in votes()) {
        let mut tally = Tally::new(size);
        let mut first: [Option<Vote>; 8] = [None; 8];
        for (master, vote) in votes {
            let counts = master < size.masters() && first[master].is_none();
            prop_assert_eq!(tally.record(master, vote), counts);
            if counts {
                first[master] = Some(vote);
            }
            for kind in [Vote::Granted, Vote::Refused, Vote::Unknown] {
                prop_assert_eq!(tally.count(kind), first.iter().filter(|v| **v == Some(kind)).count());
            }
        }
    }

    #[test]
    fn s1_s3_an_attempt_is_won_only_by_a_majority_before_its_limit(
        size in sizes(),
        replies in vec((0_usize..8, 0_u8..3, 1_u64..4, 0_u64..300, any::<bool>()), 0..30),
    ) {
        let (lease, limit) = (Duration::from_secs(2), Duration::from_secs(1));
        let start = Moment::from_nanos(77 * MS);
        let mut attempt = Attempt::new(size, start, lease, limit);
        let (mut now, mut granted, mut confirmed) = (start, [0_u64; 8], [false; 8]);
        let (mut heard, mut confirming) = ([false; 8], false);
        for (master, kind, number, wait, confirm) in replies {
            now = now + Duration::from_millis(wait);
            let step = if confirm {
                let vote = [Vote::Granted, Vote::Refused, Vote::Unknown][usize::from(kind)];
                confirmed[master] |= confirming && vote == Vote::Granted && granted[master] > 0;
                attempt.on_confirm(master, vote, now)
            } else {
                let reply = match kind {
                    0 => GrantReply::Granted { number, marks: Marks::default() },
                    1 => GrantReply::Refused(Sighting::FREE),
                    _ => GrantReply::Unknown,
                };
                if master < size.masters() && !heard[master] && !confirming {
                    heard[master] = true;
                    granted[master] = if kind == 0 { number } else { 0 };
                }
                attempt.on_grant(master, reply, now)
            };
            match step {
                Step::Wait => {}
                Step::Confirm { .. } => confirming = true,
                Step::Lost(_) => break,
                Step::Won(won) => {
                    let max = granted.iter().copied().max().unwrap();
                    let equal = granted.iter().filter(|g| **g == max).count();
                    let acknowledged = confirmed.iter().filter(|c| **c).count();
                    prop_assert!(now < start + limit);
                    prop_assert_eq!(won.valid_until, start + lease - timing::drift(lease));
                    prop_assert_eq!(won.token.0, max);
                    prop_assert!(equal.max(acknowledged) >= size.majority());
                    prop_assert!(granted.iter().filter(|g| **g > 0).count() >= size.majority());
                    break;
                }
            }
        }
    }

    #[test]
    fn s2_a_lease_value_reads_back_and_begins_with_its_stem(value in value()) {
        let text = value.to_string();
        prop_assert_eq!(text.parse(), Ok(value.clone()));
        let stem = LeaseStem::new(&value.cluster, &value.identity, value.nonce);
        prop_assert!(text.starts_with(stem.as_str()));
    }

    #[test]
    fn s2_only_texts_that_would_be_written_are_read(text in "1\\|a\\|b\\|c\\|[+0-9a-fA-F]{31,33}\\|[+-]?[0-9]{1,3}") {
        if let Ok(value) = text.parse::<LeaseValue>() {
            prop_assert_eq!(value.to_string(), text);
        }
    }

    #[test]
    fn s3_s6_no_event_moves_an_end_too_far_or_leaves_a_machine_without_anything_to_wait_for(
        seed in any::<u64>(),
        events in vec((0_u8..16, 0_u64..2_500, any::<u64>()), 1..120),
    ) {
        let mut walk = Walk::new(seed);
        for (kind, wait, entropy) in events {
            walk.now = walk.now + Duration::from_millis(wait);
            walk.step(kind, entropy)?;
        }
    }
}

/// A machine under random events, with the round that it waits for.
struct Walk {
    machine: Machine,
    now: Moment,
    round: Option<(u64, Round, Moment)>,
    asleep: bool,
    stopped: bool,
    /// The latest end that the masters can stand by.
    worth: Moment,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut walk = Self {
            machine: Machine::new(random_terms(seed), 2),
            now: Moment::from_nanos(1_000_000 * MS),
            round: None,
            asleep: false,
            stopped: false,
            worth: Moment::default(),
        };
        walk.take(Event::TimerFired, seed).unwrap();
        walk
    }

    fn step(&mut self, kind: u8, entropy: u64) -> Result<(), TestCaseError> {
        let event = match kind {
            0 | 1 => Event::TimerFired,
            2 => Event::Released {
                master: usize::try_from(entropy % 4).unwrap(),
            },
            3 => Event::QuorumBack,
            4 => Event::SpecChanged(random_terms(entropy)),
            5 if entropy.is_multiple_of(3) => Event::StepDown {
                abstain: Duration::from_millis(entropy % 5_000),
            },
            6 if entropy.is_multiple_of(3) => Event::HandOver { to: cluster(1) },
            7 if entropy.is_multiple_of(5) => Event::Shutdown,
            8 => Event::RoundFinished {
                id: entropy % 5,
                outcome: Outcome::RenewalRefused,
            },
            _ => match self.round.take() {
                Some((id, round, started)) => Event::RoundFinished {
                    id,
                    outcome: self.outcome(&round, started, entropy),
                },
                None => Event::TimerFired,
            },
        };
        self.take(event, entropy)
    }

    /// Some outcome that a round of this kind can have.
    fn outcome(&mut self, round: &Round, started: Moment, entropy: u64) -> Outcome {
        let end = |lease: Duration| started + lease - timing::drift(lease);
        match round {
            Round::Acquire { lease_duration } if entropy.is_multiple_of(2) => {
                self.worth = end(*lease_duration);
                Outcome::Won(Won {
                    token: redlock::lease::FencingToken(entropy),
                    valid_until: self.worth,
                    started,
                    marks: Marks::default(),
                })
            }
            Round::Acquire { .. } if entropy.is_multiple_of(3) => Outcome::NotWon(Loss::TooLate),
            Round::Acquire { .. } => Outcome::NotWon(Loss::Refused(self.view(entropy))),
            Round::Renew { lease_duration, .. } => match entropy % 5 {
                0 => Outcome::RenewalRefused,
                1 => Outcome::RenewalUndecided,
                _ => {
                    self.worth = end(*lease_duration);
                    Outcome::Renewed { started }
                }
            },
            Round::Observe => Outcome::Observed(self.view(entropy)),
            Round::Release => Outcome::Released,
            Round::Reserve { .. } => Outcome::Reserved {
                majority: entropy.is_multiple_of(2),
            },
        }
    }

    fn view(&self, entropy: u64) -> View {
        let mut view = View::new(QuorumSize::new(3).unwrap());
        for master in 0..3 {
            let bits = entropy >> (8 * (master + 1));
            let ends = if bits & 16 == 0 {
                self.now + Duration::from_millis(bits % 4_000)
            } else {
                Moment::NEVER
            };
            let sighting = match bits % 6 {
                0 => continue,
                1 => Sighting::FREE,
                2 => Sighting::OURS,
                3 => Sighting::blocked(Obstacle::Reserved("nobody".into()), ends),
                _ => Sighting::blocked(Obstacle::Foreign("x".into()), ends),
            };
            view.record(master, sighting);
        }
        view
    }

    fn take(&mut self, event: Event, entropy: u64) -> Result<(), TestCaseError> {
        let fired = matches!(event, Event::TimerFired);
        let undecided = matches!(
            event,
            Event::RoundFinished {
                outcome: Outcome::RenewalUndecided,
                ..
            }
        );
        let held = self.machine.authority_at(self.now).is_some();
        if fired {
            self.asleep = false;
        }
        for action in self.machine.handle(self.now, entropy, event) {
            match action {
                Action::StartRound { id, round } => {
                    let renews = matches!(round, Round::Renew { .. });
                    prop_assert!(
                        !renews || self.machine.authority_at(self.now).is_some(),
                        "renewal after the end"
                    );
                    self.round = Some((id, round, self.now));
                }
                Action::SleepUntil(_) => self.asleep = true,
                Action::PublishActive { authority, .. } => {
                    prop_assert!(authority.valid_until <= self.worth, "S3");
                }
                Action::PublishStandby { ended, .. } => {
                    let deadline = matches!(ended, None | Some(EndReason::QuorumLost | EndReason::Expired));
                    prop_assert!(
                        !undecided || deadline,
                        "S6: a failed renewal ended it: {:?}",
                        ended
                    );
                }
                Action::Stopped => {
                    prop_assert!(!held || self.machine.authority_at(self.now).is_none());
                    self.stopped = true;
                }
            }
        }
        // A timer that comes while a round is under way may be the last one.
        prop_assert!(
            self.stopped || self.round.is_some() || self.asleep,
            "nothing left to wait for"
        );
        Ok(())
    }
}

fn random_terms(entropy: u64) -> Terms {
    let mut terms = terms(0, Duration::from_millis(2_000 + entropy % 4_000));
    terms.participation = match entropy % 7 {
        0 => Participation::Observe,
        1 => Participation::SucceedSibling,
        _ => Participation::Contend,
    };
    terms.ordered_delay = Duration::from_millis((entropy >> 20) % 3 * 400);
    terms
}
