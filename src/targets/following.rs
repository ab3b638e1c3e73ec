//! Follows one object in the version that is served.

use futures_util::{StreamExt, stream};
use kube::api::ApiResource;
use tokio::{sync::watch, time};

use super::{Changes, Pause, TargetContext, kind::Need, read::Place, shared::Followed};
use crate::api::target::TargetRef;

/// Returns a stream with an item when the object changes, or when its kind is found: for the first time,
/// again, or in another version.
pub(super) fn changes_of(context: &TargetContext, reference: &TargetRef, need: Need) -> Changes {
    let following = Following {
        kinds: context.shared.kinds.changes(),
        context: context.clone(),
        reference: reference.clone(),
        need,
        followed: None,
    };
    let next = |mut following: Following| async {
        following.changed().await;
        Some(((), following))
    };
    stream::unfold(following, next).boxed()
}

struct Following {
    context: TargetContext,
    reference: TargetRef,
    need: Need,
    kinds: watch::Receiver<u64>,
    followed: Option<(ApiResource, Followed)>,
}

impl Following {
    async fn changed(&mut self) {
        let mut pause = Pause::default();
        loop {
            self.kinds.mark_unchanged();
            let context = &self.context;
            let place = Place::find(&context.client, &context.shared.kinds, &self.reference, self.need);
            match place.await {
                Ok(place) => {
                    let same = self.followed.as_ref().filter(|(of, _)| *of == place.resource);
                    if same.is_none() {
                        let followed =
                            context
                                .shared
                                .follow(&place.resource, &context.namespace, &self.reference.name);
                        self.followed = Some((place.resource, followed));
                        return;
                    }
                }
                Err(_) => {
                    self.followed = None;
                    time::sleep(pause.next().unwrap_or_default()).await;
                }
            }
            if let Some((_, followed)) = &mut self.followed {
                tokio::select! {
                    () = followed.changed() => return,
                    Ok(()) = self.kinds.changed() => {}
                }
            }
        }
    }
}
