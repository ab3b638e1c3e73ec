//! Reads lists page by page, so that no answer is larger than a few megabytes.

use std::fmt::Debug;

use kube::{Api, api::ListParams};
use serde::de::DeserializeOwned;

/// The number of objects in one page.
pub(crate) const PAGE: u32 = 500;

/// Returns the results of `keep` for all objects of a list.
pub(crate) async fn all<K, T>(
    api: &Api<K>,
    which: ListParams,
    mut keep: impl FnMut(K) -> Option<T>,
) -> kube::Result<Vec<T>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let (mut which, mut kept) = (which.limit(PAGE), Vec::new());
    loop {
        let page = api.list(&which).await?;
        kept.extend(page.items.into_iter().filter_map(&mut keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => which.continue_token = Some(token),
            None => return Ok(kept),
        }
    }
}
