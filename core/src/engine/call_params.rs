//! What the params of a call say: of a tool, and of a service of a client.

use alloc::borrow::Cow;

use serde::Deserialize;

use crate::id::RequestId;
use crate::json::Raw;
use crate::message::ErrorObject;
use crate::params::{self, Given, Members, Meta, Params};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct CallParams<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<Raw<'a>>,
    #[serde(borrow, default)]
    pub(super) task: Given<'a>,
    #[serde(borrow, default, rename = "requestState")]
    pub(super) request_state: Given<'a>,
    #[serde(borrow, default, rename = "inputResponses")]
    pub(super) input_responses: Given<'a>,
    #[serde(borrow, default, rename = "_meta")]
    pub(super) meta: Option<Meta<'a>>,
}

impl<'a> CallParams<'a> {
    pub(super) fn read(params: Option<&Params<'a>>) -> Result<Self, ErrorObject> {
        match params.and_then(Params::known).and_then(Self::of) {
            Some(call) => Ok(call),
            None => params::read(params),
        }
    }

    /// The same from members that were seen already; `None` where something is odd about them.
    fn of(known: &Members<'a>) -> Option<Self> {
        Some(Self {
            name: known.name?.string()?,
            arguments: known.arguments.and_then(Raw::non_null),
            task: Given(known.task),
            request_state: Given(None),
            input_responses: Given(None),
            meta: known.meta,
        })
    }
}

#[derive(Deserialize, Default)]
pub(super) struct ServiceParams<'a> {
    #[serde(borrow, default)]
    pub(super) task: Given<'a>,
    #[serde(borrow, default, rename = "_meta")]
    pub(super) meta: Option<Meta<'a>>,
}

/// The token of whoever wants to hear of progress, if it can be one.
pub(super) fn progress_token<'a>(meta: Option<&Meta<'a>>) -> Option<Raw<'a>> {
    let token = meta?.progress_token.0?.non_null()?;
    RequestId::parse(token.get()).map(|_| token)
}
