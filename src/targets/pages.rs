//! Reads lists in pages that are bounded by bytes: an object may have more than a megabyte, so a number of objects bounds
//! nothing.

mod size;

use std::collections::VecDeque;

use futures_util::io::{AsyncRead, AsyncReadExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Api, Resource, api::ListParams, core::Request};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

pub(crate) use size::PageSize;

/// The longest page of more than one object, in bytes. Reading a longer one ends, and a smaller page is requested.
const PAGE_LIMIT: u64 = 2 << 20;
/// The longest page of one object. The API server stores at most 1.5 MiB of it, in a form that may be shorter than JSON.
const OBJECT_LIMIT: u64 = 16 << 20;

/// A page whose objects are not decoded yet: decoded, an object may take ten times as much memory.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) items: VecDeque<Box<RawValue>>,
    /// The token of the next page.
    pub(super) next: Option<String>,
    /// The version of the whole list.
    pub(super) version: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<VecDeque<Box<RawValue>>>,
}

/// Reads the page that `which` selects, with as many objects as fit.
pub(super) async fn read_page<K>(api: &Api<K>, which: &ListParams, size: &mut PageSize) -> kube::Result<Page>
where
    K: Resource + Clone,
{
    loop {
        let which = which.clone().limit(size.objects());
        let request = Request::new(api.resource_url()).list(&which);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let body = api.clone().into_client().request_stream(request).await?;
        let limit = if size.is_least() { OBJECT_LIMIT } else { PAGE_LIMIT };
        let Some(text) = read_up_to(body, limit).await? else {
            if size.is_least() {
                let reason = format!(
                    "an object of the list has more than {limit} bytes: delete it, or make it smaller"
                );
                return Err(kube::Error::Service(reason.into()));
            }
            size.shrink();
            continue;
        };
        let listed: Listed = serde_json::from_slice(&text).map_err(kube::Error::SerdeError)?;
        let items = listed.items.unwrap_or_default();
        size.fit(items.len(), text.len());
        return Ok(Page {
            items,
            next: listed.metadata.continue_.filter(|token| !token.is_empty()),
            version: listed
                .metadata
                .resource_version
                .filter(|version| !version.is_empty()),
        });
    }
}

/// Reads a body; `None` if it is longer than the limit.
async fn read_up_to(body: impl AsyncRead, limit: u64) -> kube::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let mut body = std::pin::pin!(body.take(limit + 1));
    let read = body.read_to_end(&mut text).await;
    let read = read.map_err(|error| kube::Error::Service(error.into()))?;
    Ok((u64::try_from(read).unwrap_or(u64::MAX) <= limit).then_some(text))
}

/// Decodes one object.
pub(super) fn decode<K: DeserializeOwned>(object: &RawValue) -> serde_json::Result<K> {
    serde_json::from_str(object.get())
}

/// Returns the results of `keep` for all objects of a list.
pub(crate) async fn all<K, T>(
    api: &Api<K>,
    which: ListParams,
    keep: impl FnMut(K) -> Option<T>,
) -> kube::Result<Vec<T>>
where
    K: Resource + Clone + DeserializeOwned,
{
    let (kept, _) = all_at(api, which, keep).await?;
    Ok(kept)
}

/// Returns the results of `keep` for all objects of a list, and the version of the list: that of its first page, at which
/// the API server also reads the other pages.
pub(crate) async fn all_at<K, T>(
    api: &Api<K>,
    mut which: ListParams,
    mut keep: impl FnMut(K) -> Option<T>,
) -> kube::Result<(Vec<T>, Option<String>)>
where
    K: Resource + Clone + DeserializeOwned,
{
    let (mut size, mut kept, mut version) = (PageSize::default(), Vec::new(), None);
    loop {
        let page = read_page(api, &which, &mut size).await?;
        version = version.or(page.version);
        for object in page.items {
            kept.extend(keep(decode(&object).map_err(kube::Error::SerdeError)?));
        }
        match page.next {
            Some(token) => which.continue_token = Some(token),
            None => return Ok((kept, version)),
        }
    }
}

#[cfg(test)]
mod tests;
