//! Probes whether the API server answers, with a small request every few seconds.

use std::time::Duration;

use kube::Client;
use tokio::{sync::watch, time};

use super::renewed::Renewal;
use crate::{clock, lease::BootInstant, targets::deepest};

/// Interval between probes while they are answered.
const EVERY: Duration = Duration::from_secs(3);
/// Interval after a failed probe.
const AGAIN: Duration = Duration::from_millis(250);
/// Timeout of a probe. An API server that takes a second per request still answers within this time on a new
/// connection.
const PATIENCE: Duration = Duration::from_secs(4);
/// The length of a silence after which the earlier connections are replaced: a watch on such a connection may
/// stay silent forever. It exceeds the length of one failed probe, which a loaded server may cause.
const SILENCE: Duration = Duration::from_secs(8);
/// The length of a silence after which the observed state of the cluster is stale.
const LOST: Duration = Duration::from_secs(10);

/// The state of the connection to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contact {
    /// The time of the last answered probe, or of the start.
    answered: BootInstant,
    /// Whether the last probe failed.
    failed: bool,
}

impl Contact {
    /// Records an answer. Returns whether the existing connections are to be replaced.
    fn answer(&mut self, now: BootInstant) -> bool {
        let silent = self.failed && now.since(self.answered) >= SILENCE;
        (self.answered, self.failed) = (now, false);
        silent
    }

    fn fail(&mut self) {
        self.failed = true;
    }

    fn is_lost(&self, now: BootInstant) -> bool {
        self.failed && now.since(self.answered) >= LOST
    }
}

/// What the other tasks of the process know about the API server.
#[derive(Debug)]
pub(super) struct ContactViews {
    /// Whether the observed state of the cluster is stale.
    pub(super) lost: watch::Sender<bool>,
    /// The time of the last answer.
    pub(super) answered: watch::Sender<BootInstant>,
}

/// Probes forever, and shows the results in `views`.
pub(super) async fn keep(probe: Client, renewals: Vec<Renewal>, views: ContactViews) {
    let ContactViews { lost, answered } = views;
    let mut contact = Contact {
        answered: clock::now(),
        failed: false,
    };
    loop {
        let asked = time::timeout(PATIENCE, ask(&probe)).await;
        match asked {
            Ok(result) if is_contact(&result) => {
                let now = clock::now();
                answered.send_replace(now);
                if contact.answer(now) {
                    tracing::warn!("the API server answers again: watches continue over new connections");
                    for renewal in &renewals {
                        if let Err(error) = renewal.renew() {
                            tracing::error!(reason = deepest(&error), "connections could not be renewed");
                        }
                    }
                }
            }
            Ok(_) | Err(_) => contact.fail(),
        }
        let now_lost = contact.is_lost(clock::now());
        let changed = lost.send_if_modified(|lost| std::mem::replace(lost, now_lost) != now_lost);
        if changed && now_lost {
            tracing::warn!(
                seconds = LOST.as_secs(),
                "the API server does not answer: the state of all objects is unknown until it does"
            );
        }
        time::sleep(if contact.failed { AGAIN } else { EVERY }).await;
    }
}

/// Reports whether the API server works for this process: it refuses only this request. A server that has lost its store
/// answers with an error of its own, and the token of a pod that is gone is not accepted.
fn is_contact(result: &kube::Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(kube::Error::Api(status)) => status.code < 500 && status.code != 401,
        Err(_) => false,
    }
}

/// Sends a request that API Priority and Fairness does not queue by default, and that every user may send.
async fn ask(probe: &Client) -> kube::Result<()> {
    let request = http::Request::get("/livez").body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    probe.request_text(request).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn server_that_refuses_the_request_alone_is_in_contact() {
        for (code, contact) in [
            (403, true),
            (404, true),
            (429, true),
            (401, false),
            (500, false),
            (503, false),
        ] {
            let status = kube::core::Status::failure("refused", "test").with_code(code);
            let answer = Err(kube::Error::Api(Box::new(status)));
            assert_eq!(is_contact(&answer), contact, "{code}");
        }
        assert!(is_contact(&Ok(())));
    }

    #[test]
    fn connections_are_given_up_after_a_silence_and_not_after_one_slow_answer() {
        let mut contact = Contact {
            answered: at(0),
            failed: false,
        };
        assert!(!contact.answer(at(3)));
        assert!(
            !contact.answer(at(60)),
            "the process slept, and every question was answered"
        );
        contact.fail();
        assert!(!contact.is_lost(at(69)));
        assert!(contact.is_lost(at(70)));
        assert!(contact.answer(at(71)));
        assert!(!contact.is_lost(at(71)));
        assert!(!contact.answer(at(72)), "once");
        contact.fail();
        assert!(!contact.answer(at(79)), "one question was not answered in time");
        contact.fail();
        assert!(
            !contact.answer(at(84)),
            "a server that was started anew ends its connections itself"
        );
    }
}
