//! Tests properties of the pure core, by the invariant that they serve.

use std::time::Duration;

use proptest::prelude::*;
use redlock_core::{
    Action, Attempt, BootInstant, ClusterId, Event, FencingToken, GrantReply, HolderIdentity, LeaseValue,
    Loss, Machine, Marks, Nonce, Obstacle, Outcome, Participation, QuorumSize, ReleaseMode, Round, Sighting,
    Step, Tally, Terms, Timings, Verdict, View, Vote, Won, timing,
};

use crate::world::{ACQUIRE_LIMIT, LONG, SHORT};

const START: BootInstant = BootInstant::from_nanos(1_000_000_000);

fn sizes() -> impl Strategy<Value = QuorumSize> {
    prop::sample::select(vec![1, 3, 5, 7]).prop_map(|n| QuorumSize::new(n).unwrap())
}

fn votes() -> impl Strategy<Value = Vec<(usize, Vote)>> {
    let vote = prop::sample::select(vec![Vote::Granted, Vote::Refused, Vote::Unknown]);
    prop::collection::vec((0_usize..9, vote), 0..20)
}

fn lease(nonce: u8) -> LeaseValue {
    LeaseValue {
        cluster: ClusterId::new("east", "east").unwrap(),
        identity: HolderIdentity::parse("other").unwrap(),
        nonce: Nonce(nonce.into()),
        grant: 1,
    }
}

fn sighting() -> impl Strategy<Value = Sighting> {
    prop_oneof![
        Just(Sighting::FREE),
        Just(Sighting::OURS),
        (0_u8..3, any::<u32>()).prop_map(|(nonce, left)| {
            Sighting::blocked(
                Obstacle::Lease(lease(nonce)),
                BootInstant::from_nanos(u64::from(left) * 10),
            )
        }),
        Just(Sighting::blocked(
            Obstacle::Reserved("nobody".into()),
            BootInstant::NEVER
        )),
    ]
}

fn grant_reply() -> impl Strategy<Value = GrantReply> {
    prop_oneof![
        3 => (1_u64..4).prop_map(|number| GrantReply::Granted { number, marks: Marks::default(), mark: None }),
        1 => sighting().prop_map(GrantReply::Refused),
        1 => Just(GrantReply::Unknown),
    ]
}

proptest! {
    #[test]
    fn s1_a_verdict_once_certain_never_changes(size in sizes(), votes in votes()) {
        let mut tally = Tally::new(size);
        let mut certain = Verdict::Pending;
        for (master, vote) in votes {
            tally.record(master, vote);
            if certain != Verdict::Pending {
                prop_assert_eq!(tally.verdict(), certain);
            }
            certain = tally.verdict();
        }
    }

    #[test]
    fn s1_the_second_vote_of_a_master_never_counts(size in sizes(), votes in votes()) {
        let (mut once, mut twice) = (Tally::new(size), Tally::new(size));
        for (master, vote) in votes {
            once.record(master, vote);
            twice.record(master, vote);
            prop_assert!(!twice.record(master, Vote::Granted));
            prop_assert_eq!(once.verdict(), twice.verdict());
            prop_assert_eq!(once.count(Vote::Granted), twice.count(Vote::Granted));
        }
    }

    #[test]
    fn s1_an_attempt_is_won_only_by_a_majority_within_its_limit(
        size in sizes(),
        replies in prop::collection::vec((0_usize..9, grant_reply(), any::<bool>(), 0_u64..80), 0..30),
    ) {
        let mut attempt = Attempt::new(size, START, SHORT.lease_duration, ACQUIRE_LIMIT);
        let (mut now, mut greatest) = (START, 0);
        let (mut granted, mut confirmed) = ([None; 9], [false; 9]);
        let mut over = false;
        for (master, reply, confirm, later) in replies {
            now = now + Duration::from_millis(later);
            let step = if confirm {
                confirmed[master] |= granted[master].is_some();
                attempt.on_confirm(master, reply.vote(), now)
            } else {
                if let (GrantReply::Granted { number, .. }, true) = (&reply, master < size.masters()) {
                    granted[master].get_or_insert(*number);
                    greatest = greatest.max(*number);
                }
                attempt.on_grant(master, reply, now)
            };
            prop_assert!(!over || matches!(step, Step::Wait), "it was over");
            over |= matches!(step, Step::Won(_) | Step::Lost(_));
            if let Step::Won(won) = step {
                prop_assert!(now < START + ACQUIRE_LIMIT);
                prop_assert!(won.valid_until <= START + SHORT.lease_duration - timing::drift(SHORT.lease_duration));
                prop_assert!(granted.iter().flatten().count() >= size.majority());
                prop_assert!(won.token.0 <= greatest);
                let same = granted.iter().flatten().filter(|n| **n == won.token.0).count();
                let acknowledged = confirmed.iter().filter(|c| **c).count();
                prop_assert!(same >= size.majority() || acknowledged >= size.majority());
            }
        }
    }

    #[test]
    fn l1_an_attempt_that_every_master_answered_is_over_or_confirms(size in sizes(), replies in
        prop::collection::vec(grant_reply(), 7)) {
        let mut attempt = Attempt::new(size, START, SHORT.lease_duration, ACQUIRE_LIMIT);
        let known = replies[..size.masters()].iter().filter(|r| r.vote() != Vote::Unknown).count();
        let mut last = None;
        for (master, reply) in replies.into_iter().take(size.masters()).enumerate() {
            match attempt.on_grant(master, reply, START) {
                Step::Wait => {}
                step => last = Some(step),
            }
        }
        prop_assert!(last.is_some());
        if let Some(Step::Lost(loss)) = last {
            prop_assert_eq!(matches!(loss, Loss::Refused(_)), known >= size.majority(), "{:?}", loss);
        }
    }

    #[test]
    fn s2_a_lease_value_reads_back_as_it_was_written(nonce: u128, grant: u64, uid in "[a-z0-9]{1,8}") {
        let cluster = ClusterId::new("east", &uid).unwrap();
        let value = LeaseValue { cluster, nonce: Nonce(nonce), grant, ..lease(0) };
        prop_assert_eq!(value.to_string().parse::<LeaseValue>(), Ok(value));
    }

    #[test]
    fn s2_a_value_that_is_read_is_written_the_same(text in "1\\|east\\|uid\\|other\\|[+0-9a-fA-F]{32}\\|[+]?[0-9]{1,4}") {
        if let Ok(value) = text.parse::<LeaseValue>() {
            prop_assert_eq!(value.nonce.to_string(), text.split('|').nth(4).unwrap());
        }
    }

    #[test]
    fn l1_one_more_account_never_puts_the_free_moment_off(size in sizes(), seen in
        prop::collection::vec((0_usize..9, sighting()), 0..12)) {
        let mut view = View::new(size);
        let mut before: Option<BootInstant> = None;
        for (master, sighting) in seen {
            view.record(master, sighting);
            let now = view.free_at();
            prop_assert!(before.is_none_or(|before| now.is_some_and(|now| now <= before)));
            before = now;
        }
    }

    #[test]
    fn s3_no_events_give_authority_beyond_the_lease_of_its_round_or_leave_the_machine_stuck(
        events in prop::collection::vec((0_u8..15, 0_u64..1_500, any::<u64>()), 0..120),
    ) {
        Script::new().play(events)?;
    }
}

/// Gives arbitrary events to a machine, as arbitrary masters would cause them.
struct Script {
    machine: Machine,
    now: BootInstant,
    timer: Option<BootInstant>,
    /// The round under way: its id, the round, and its start.
    round: Option<(u64, Round, BootInstant)>,
    published: Option<BootInstant>,
    /// The end of the lease that was won or renewed last, beyond which no authority may reach.
    bound: BootInstant,
    stopped: bool,
}

fn terms(timings: Timings, entropy: u64) -> Terms {
    Terms {
        cluster: ClusterId::new("any", if entropy & 1 == 0 { "east" } else { "west" }).unwrap(),
        timings,
        participation: match entropy % 5 {
            0 => Participation::Observe,
            1 => Participation::SucceedSibling,
            _ => Participation::Contend,
        },
        ordered_delay: Duration::from_millis(entropy % 3 * 100),
        guards: false,
        siblings_first: false,
        fenced: false,
    }
}

impl Script {
    fn new() -> Self {
        Self {
            machine: Machine::new(terms(SHORT, 2), 2),
            now: START,
            timer: Some(START),
            round: None,
            published: None,
            bound: START,
            stopped: false,
        }
    }

    fn play(mut self, events: Vec<(u8, u64, u64)>) -> Result<(), TestCaseError> {
        for (kind, later, entropy) in events {
            self.now = self.now + Duration::from_millis(later);
            let Some(event) = self.choose(kind, entropy) else {
                continue;
            };
            let ended = self.published.is_some_and(|end| end <= self.now);
            let actions = self.machine.handle(self.now, entropy, event);
            if ended {
                let first_word = matches!(
                    actions.first(),
                    Some(Action::PublishStandby { ended: Some(_), .. })
                );
                prop_assert!(first_word, "ended leases are reported first: {:?}", actions);
            }
            for action in actions {
                self.take(action)?;
            }
            let under_way = self.round.is_some() || self.timer.is_some();
            prop_assert!(under_way || self.stopped, "stuck: {:?}", self.machine);
            prop_assert!(self.published.is_some() || self.machine.authority_at(self.now).is_none());
        }
        Ok(())
    }

    fn choose(&mut self, kind: u8, entropy: u64) -> Option<Event> {
        Some(match kind {
            0..=5 => {
                let (id, round, started) = self.round.take()?;
                let outcome = self.outcome(&round, started, entropy);
                Event::RoundFinished { id, outcome }
            }
            6 => {
                let due = self.timer.take()?;
                self.now = self.now.max(due);
                Event::TimerFired
            }
            7 => Event::Released {
                master: usize::try_from(entropy % 9).unwrap(),
            },
            8 => Event::QuorumBack,
            9 => Event::SpecChanged(terms(if entropy & 8 == 0 { SHORT } else { LONG }, entropy)),
            10 => Event::StepDown {
                abstain: Duration::from_millis(entropy % 900),
            },
            11 => Event::HandOver {
                to: ClusterId::new("west", "west").unwrap(),
                token: None,
            },
            12 if entropy.is_multiple_of(4) => Event::Shutdown(ReleaseMode::Release),
            13 => Event::Marked,
            // The round of a lease that is over.
            _ => Event::RoundFinished {
                id: 0,
                outcome: Outcome::Renewed { started: self.now },
            },
        })
    }

    fn outcome(&mut self, round: &Round, started: BootInstant, entropy: u64) -> Outcome {
        let end = |lease: Duration| started + lease - timing::drift(lease);
        let mut view = View::new(QuorumSize::new(3).unwrap());
        for master in 0..3 {
            let nonce = u8::try_from(entropy >> (8 * master) & 3).unwrap();
            let left = Duration::from_millis(entropy >> 32 & 2_047);
            match nonce {
                0 => {}
                1 => view.record(master, Sighting::FREE),
                _ => view.record(
                    master,
                    Sighting::blocked(Obstacle::Lease(lease(nonce)), self.now + left),
                ),
            }
        }
        match round {
            Round::Acquire { lease_duration } if entropy & 64 == 0 => {
                self.bound = end(*lease_duration);
                let token = FencingToken(entropy);
                Outcome::Won(Won {
                    succession: None,
                    token,
                    valid_until: self.bound,
                    started,
                    marks: Marks::default(),
                })
            }
            Round::Acquire { .. } if view.decided() => Outcome::NotWon(Loss::Refused(view)),
            Round::Acquire { .. } => Outcome::NotWon(Loss::NoQuorum(view)),
            Round::Renew { lease_duration, .. } => match entropy % 4 {
                0 => Outcome::RenewalRefused,
                1 => Outcome::RenewalUndecided,
                _ => {
                    self.bound = end(*lease_duration);
                    Outcome::Renewed { started }
                }
            },
            Round::Observe => Outcome::Observed(view),
            Round::Release | Round::Undo => Outcome::Released,
            Round::Reserve { .. } => Outcome::Reserved {
                majority: entropy & 1 == 0,
            },
        }
    }

    fn take(&mut self, action: Action) -> Result<(), TestCaseError> {
        prop_assert!(!self.stopped, "nothing comes after Stopped");
        match action {
            Action::StartRound { id, round } => {
                if let Round::Renew { .. } = round {
                    let held = self.machine.authority_at(self.now).is_some();
                    prop_assert!(held, "no renewal after the local end");
                } else {
                    prop_assert!(
                        self.published.is_none(),
                        "the end is reported before the first byte of {:?}",
                        round
                    );
                }
                self.round = Some((id, round, self.now));
            }
            Action::SleepUntil(moment) => self.timer = Some(moment),
            Action::PublishActive { authority, .. } => {
                prop_assert!(authority.valid_until <= self.bound);
                self.published = Some(authority.valid_until);
            }
            Action::PublishStandby { .. } => self.published = None,
            Action::Stopped => self.stopped = true,
        }
        Ok(())
    }
}
