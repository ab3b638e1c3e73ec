//! Actions that this version does not know how to do.

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, ready},
    stream,
};

use super::{Changes, Leave, Step, TargetError};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork, target::Action},
    lease::Moment,
};

pub(super) struct NotSupported(pub(super) Action);

impl NotSupported {
    fn step(&self) -> Step {
        let text = format!("this version does not switch by {:?}", self.0);
        Step::trouble(TargetState::Unknown, "NotSupported", text)
    }
}

impl super::Action for NotSupported {
    fn declare(&mut self, _: &TargetWork) {}

    fn look(&mut self) -> BoxFuture<'_, Result<TargetState, TargetError>> {
        ready(Ok(TargetState::Unknown)).boxed()
    }

    fn start<'a>(&'a mut self, _: &'a Leave) -> BoxFuture<'a, Result<Step, TargetError>> {
        ready(Ok(self.step())).boxed()
    }

    fn stop(&mut self, _: Option<Moment>) -> BoxFuture<'_, Result<Step, TargetError>> {
        ready(Ok(self.step())).boxed()
    }

    fn changes(&self) -> Changes {
        stream::pending().boxed()
    }
}
