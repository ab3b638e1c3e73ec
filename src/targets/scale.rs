//! Scale: the replicas of anything with a scale subresource, and of that subresource only.

mod subresource;

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};

use super::{Action, Changes, Leave, Site, Step, TargetError, follow, in_flight::InFlight, kind::resource};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork, target::TargetRef},
    lease::Moment,
};
use subresource::{Object, Sight, Write};

pub(super) struct Scale {
    site: Site,
    reference: TargetRef,
    active: i32,
    standby: i32,
    /// Found once.
    object: Option<Object>,
    in_flight: InFlight,
}

impl Scale {
    pub(super) fn new(site: Site, reference: &TargetRef, (active, standby): (i32, i32)) -> Self {
        Self {
            site,
            reference: reference.clone(),
            active,
            standby,
            object: None,
            in_flight: InFlight::default(),
        }
    }

    async fn object(&mut self) -> Result<Object, TargetError> {
        if let Some(object) = &self.object {
            return Ok(object.clone());
        }
        let object = find(&self.site, &self.reference).await?;
        Ok(self.object.insert(object).clone())
    }

    fn state(&self, sight: &Sight) -> TargetState {
        match sight {
            Sight::Missing => TargetState::Standby,
            Sight::Here { wanted, .. } if *wanted == self.active => TargetState::Active,
            Sight::Here { wanted, counted, .. } if *wanted <= self.standby && *counted <= self.standby => {
                TargetState::Standby
            }
            Sight::Here { .. } => TargetState::Changing,
        }
    }

    async fn try_start(&mut self, leave: &Leave) -> Result<Step, TargetError> {
        let object = self.object().await?;
        let missing = || {
            let text = format!("{} does not exist", object.called());
            Step::trouble(TargetState::Standby, "TargetNotFound", text)
        };
        let sight = object.look().await?;
        let state = self.state(&sight);
        let Sight::Here { wanted, .. } = sight else {
            return Ok(missing());
        };
        if wanted == self.active {
            self.in_flight.settle();
            return Ok(Step::Done);
        }
        let before = self.in_flight.send();
        let written = object.start(self.active, leave).await;
        self.in_flight.answered(before, &written, |write| {
            matches!(write, Write::Done | Write::Missing)
        });
        Ok(match written? {
            Write::Done => Step::Done,
            Write::Missing => missing(),
            Write::Conflict(who) => Step::trouble(state, "EnforcementConflict", who),
            Write::Late => Step::Working(state),
        })
    }

    async fn try_stop(&mut self, by: Option<Moment>) -> Result<Step, TargetError> {
        let object = match self.object().await {
            // What no API server knows does not run.
            Err(TargetError::UnknownKind { .. }) => return Ok(Step::Done),
            found => found?,
        };
        // Asked before anything is counted: what was counted before it was heeded may be less than what comes.
        let heeded = object.is_heeded().await?;
        // A missing target counts as stopped.
        let Sight::Here {
            wanted,
            counted,
            selector,
        } = object.look().await?
        else {
            return Ok(Step::Done);
        };
        if wanted > self.standby {
            return Ok(match object.stop(self.standby).await? {
                Write::Missing => Step::Done,
                Write::Done | Write::Conflict(_) | Write::Late => Step::Working(TargetState::Changing),
            });
        }
        let left = match &selector {
            Some(selector) => object.pods().left(selector).await?,
            None => Vec::new(),
        };
        let keep = usize::try_from(self.standby).unwrap_or(0);
        if heeded && counted <= self.standby && left.len() <= keep && !self.in_flight.is_open() {
            self.in_flight.settle();
            return Ok(Step::Done);
        }
        if keep == 0 {
            object.pods().hurry(&left, by).await?;
        }
        Ok(Step::Working(TargetState::Changing))
    }
}

impl Action for Scale {
    fn declare(&mut self, work: &TargetWork) {
        if let TargetWork::Scale {
            active_replicas,
            standby_replicas,
            ..
        } = work
        {
            (self.active, self.standby) = (*active_replicas, *standby_replicas);
        }
    }

    fn look(&mut self) -> BoxFuture<'_, Result<TargetState, TargetError>> {
        async {
            let sight = self.object().await?.look().await?;
            Ok(self.state(&sight))
        }
        .boxed()
    }

    fn start<'a>(&'a mut self, leave: &'a Leave) -> BoxFuture<'a, Result<Step, TargetError>> {
        self.try_start(leave).boxed()
    }

    /// Done when the pods are gone, not when the number is written.
    fn stop(&mut self, by: Option<Moment>) -> BoxFuture<'_, Result<Step, TargetError>> {
        self.try_stop(by).boxed()
    }

    fn ready(&mut self) -> BoxFuture<'_, Result<Option<bool>, TargetError>> {
        async {
            let object = self.object().await?;
            let Sight::Here {
                selector: Some(selector),
                ..
            } = object.look().await?
            else {
                return Ok(None);
            };
            object.pods().any_ready(&selector).await.map(Some)
        }
        .boxed()
    }

    fn changes(&self) -> Changes {
        let (site, reference) = (self.site.clone(), self.reference.clone());
        let found = stream::once(async move { find(&site, &reference).await.ok() });
        let events = found.filter_map(|object| async { object }).map(|object| {
            let (api, config) = object.followed();
            follow(api, config)
        });
        events.flatten().boxed()
    }
}

async fn find(site: &Site, reference: &TargetRef) -> Result<Object, TargetError> {
    let resource = resource(&site.client, reference).await?;
    Ok(Object::new(&site.client, &site.namespace, reference, &resource))
}
