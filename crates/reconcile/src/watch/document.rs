//! [`Document`]: an object of any kind as the API server sent it.
//!
//! A watch is a state machine of a few thousand instructions, and generic code is compiled for each kind in each crate that
//! watches it. So there is one watch, for documents; what is compiled for a kind is only how it is read and stored.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, core::DynamicResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of any kind.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// Of all metadata the version only, which is what a watch goes on from.
    metadata: ObjectMeta,
    pub(super) value: Value,
}

impl Document {
    /// What `api` reaches, as documents.
    pub(super) fn api<K: kube::Resource>(api: Api<K>) -> Api<Self> {
        let url = api.resource_url().to_owned();
        Api::all_with(api.into_client(), &url)
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let resource_version = value["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        Ok(Self { metadata: ObjectMeta { resource_version, ..ObjectMeta::default() }, value })
    }
}

/// Only the address of a collection is asked for; it is the dynamic type.
impl kube::Resource for Document {
    type DynamicType = String;
    type Scope = DynamicResourceScope;

    fn kind(_url: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn group(_url: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn version(_url: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn plural(_url: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn url_path(url: &String, _namespace: Option<&str>) -> String {
        url.clone()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
