//! What the params of a call say.

use alloc::borrow::Cow;

use crate::id::RequestId;
use crate::json::Raw;
use crate::message::ErrorObject;
use crate::params::{self, Meta, Params};

/// The params of `tools/call`.
pub(super) struct CallParams<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: Option<Raw<'a>>,
    pub(super) task: Option<Raw<'a>>,
    pub(super) request_state: Option<Raw<'a>>,
    pub(super) input_responses: Option<Raw<'a>>,
    pub(super) meta: Option<&'a Meta<'a>>,
}

impl<'a> CallParams<'a> {
    pub(super) fn read(params: Option<&Params<'a>>) -> Result<Self, ErrorObject> {
        let members = params::members(params)?;
        members.once(params::ALL)?;
        params::check_meta(params)?;
        Ok(Self {
            name: params::text("name", members.name)?,
            arguments: members.arguments,
            task: members.task,
            request_state: members.request_state,
            input_responses: members.input_responses,
            meta: members.meta.as_ref(),
        })
    }
}

/// The token for progress, if there is one that can be a token. It is given back as it came.
pub(super) fn progress_token<'a>(meta: Option<&Meta<'a>>) -> Option<Raw<'a>> {
    let token = meta?.progress_token?;
    RequestId::parse(token.get()).map(|_| token)
}
