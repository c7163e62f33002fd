//! The params of a call.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use crate::ids::RequestId;
use crate::json::raw::Raw;
use crate::protocol::trace_context::TraceContext;
use crate::rpc::error::ErrorObject;
use crate::rpc::params::{self, Params, ParamsMeta};

/// The params of `tools/call`.
pub(crate) struct CallParams<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) arguments: Option<Raw<'a>>,
    pub(crate) task: Option<Raw<'a>>,
    pub(crate) request_state: Option<Raw<'a>>,
    pub(crate) input_responses: Option<Raw<'a>>,
    pub(crate) meta: Option<&'a ParamsMeta<'a>>,
    /// All of them, as JSON text.
    pub(crate) whole: &'a str,
}

impl<'a> CallParams<'a> {
    pub(crate) fn read(params: Option<&Params<'a>>) -> Result<Self, ErrorObject> {
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
            whole: params.map_or("{}", Params::get),
        })
    }
}

/// The trace context of a request (OBS-01).
pub(crate) fn trace_of(meta: Option<&ParamsMeta<'_>>) -> Option<Box<TraceContext>> {
    TraceContext::of_members(meta?.trace)
}

/// The token for progress, if there is one that can be a token. It is given back as it came.
pub(crate) fn progress_token<'a>(meta: Option<&ParamsMeta<'a>>) -> Option<Raw<'a>> {
    let token = meta?.progress_token?;
    RequestId::parse(token.get()).map(|_| token)
}
