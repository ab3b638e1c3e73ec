//! Lists every step that a client, a server or the seal of the new server may take next.

use stateright::{Model, Property};

use super::{ATTEMPTS, Action, Attempt, NAMES, PROMISE, Phase, Server, State, Step, World};

impl World {
    fn of_attempt(state: &State, id: usize, actions: &mut Vec<Action>) {
        let attempt = &state.attempts[id];
        for name in 0..NAMES {
            let server = &state.servers[attempt.server(name)];
            if !server.sealed {
                continue;
            }
            let asked = attempt.asked & 1 << name != 0;
            let granted = server.lease == Some((id as u8, attempt.numbers[name]));
            let mine = server.lease.is_none_or(|(of, _)| usize::from(of) == id);
            for replies in [true, false] {
                match attempt.phase {
                    Phase::Granting if !asked && server.lease.is_none() => {
                        actions.push(Action::Grant {
                            attempt: id,
                            name,
                            replies,
                        });
                    }
                    Phase::Confirming(_) if !asked && granted && attempt.counts(name) => {
                        actions.push(Action::Confirm {
                            attempt: id,
                            name,
                            replies,
                        });
                    }
                    _ => {}
                }
            }
            if attempt.renewing && attempt.acks & 1 << name == 0 && mine {
                actions.push(Action::Renew { attempt: id, name });
            }
        }
        if matches!(attempt.phase, Phase::Held(_)) && !attempt.renewing {
            actions.push(Action::StartRenewal { attempt: id });
        }
        if attempt.is_active() {
            actions.push(Action::End { attempt: id });
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let sealed = Server {
            sealed: true,
            ..Server::default()
        };
        vec![State {
            servers: [sealed, Server::default(), sealed, sealed],
            attempts: Default::default(),
            step: 0,
            waits_for: 0,
            floor: 0,
            won: 0,
            new_server_decided: false,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        if state
            .attempts
            .iter()
            .any(|attempt| attempt.phase == Phase::Unborn)
        {
            actions.extend([false, true].map(|new_view| Action::Begin { new_view }));
        }
        for id in 0..ATTEMPTS {
            Self::of_attempt(state, id, actions);
        }
        for (server, found) in state.servers.iter().enumerate() {
            if found
                .lease
                .is_some_and(|(of, _)| !state.attempts[usize::from(of)].is_active())
            {
                actions.push(Action::Expire { server });
            }
        }
        if let Some(step) = self.0.steps().get(state.step)
            && (*step != Step::EndWait || state.waits_for & state.active() == 0)
        {
            actions.push(Action::SealStep(*step));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Begin { new_view } => {
                let id = state
                    .attempts
                    .iter()
                    .position(|attempt| attempt.phase == Phase::Unborn)?;
                state.attempts[id] = Attempt {
                    phase: Phase::Granting,
                    new_view,
                    after: (u16::BITS - last.won.leading_zeros()).saturating_sub(1) as u8,
                    ..Attempt::default()
                };
            }
            Action::Grant {
                attempt,
                name,
                replies,
            } => state.grant(attempt, name, replies),
            Action::Confirm {
                attempt,
                name,
                replies,
            } => {
                let Phase::Confirming(token) = last.attempts[attempt].phase else {
                    return None;
                };
                state.confirm(attempt, name, token, replies);
            }
            Action::StartRenewal { attempt } => {
                let waiting = self.0.steps()[..state.step].contains(&Step::StartWait);
                let attempt = &mut state.attempts[attempt];
                (attempt.renewing, attempt.acks, attempt.clears_wait) = (true, 0, waiting);
            }
            Action::Renew { attempt, name } => {
                let Phase::Held(token) = last.attempts[attempt].phase else {
                    return None;
                };
                state.renew(attempt, name, token);
            }
            Action::End { attempt } => {
                state.attempts[attempt] = Attempt {
                    phase: Phase::Over,
                    ..Attempt::default()
                };
            }
            Action::Expire { server } => state.servers[server].lease = None,
            Action::SealStep(step) => state.seal_step(step),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PROMISE, |_, state: &State| state.broken.is_none()),
            Property::sometimes("the new server decides", |_, state: &State| {
                state.new_server_decided
            }),
        ]
    }
}
