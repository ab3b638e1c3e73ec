//! Whether the API server answers, by a small request every few seconds.

use std::time::Duration;

use kube::Client;
use tokio::{sync::watch, time};

use super::renewed::Renewal;
use crate::{clock, lease::BootInstant, targets::deepest};

/// Between two questions, while they are answered.
const EVERY: Duration = Duration::from_secs(3);
/// And after one that was not.
const AGAIN: Duration = Duration::from_millis(250);
/// A server that takes a second for each request answers within this on a new connection.
const PATIENCE: Duration = Duration::from_secs(4);
/// After a silence of this length no connection is relied upon that was open before: a watch on it may be silent for
/// ever. It is longer than one question that was not answered, which a loaded server may cause.
const SILENCE: Duration = Duration::from_secs(8);
/// After this long what was seen of the cluster is old.
const LOST: Duration = Duration::from_secs(10);

/// What is known of the way to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contact {
    /// The last question that was answered, or the start.
    answered: BootInstant,
    /// The question after it was not.
    failed: bool,
}

impl Contact {
    /// Returns whether the connections of before are to be given up. An answer to a question that was sent then.
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

/// Asks for ever; `lost` shows whether what was seen of the cluster is old.
pub(super) async fn keep(probe: Client, renewals: Vec<Renewal>, lost: watch::Sender<bool>) {
    let mut contact = Contact {
        answered: clock::now(),
        failed: false,
    };
    loop {
        let asked = time::timeout(PATIENCE, ask(&probe)).await;
        match asked {
            // Whatever it says, it is there.
            Ok(Ok(()) | Err(kube::Error::Api(_))) => {
                if contact.answer(clock::now()) {
                    tracing::warn!("the API server answers again: watches continue over new connections");
                    for renewal in &renewals {
                        if let Err(error) = renewal.renew() {
                            tracing::error!(reason = deepest(&error), "connections could not be made anew");
                        }
                    }
                }
            }
            Ok(Err(_)) | Err(_) => contact.fail(),
        }
        let now_lost = contact.is_lost(clock::now());
        let changed = lost.send_if_modified(|lost| std::mem::replace(lost, now_lost) != now_lost);
        if changed && now_lost {
            tracing::warn!(
                seconds = LOST.as_secs(),
                "the API server does not answer: how objects are is unknown until it does"
            );
        }
        time::sleep(if contact.failed { AGAIN } else { EVERY }).await;
    }
}

/// A request that API Priority and Fairness does not queue by default, and that every user may send.
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
