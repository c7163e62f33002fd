//! The result of a response in the buffer that its frame came in.

use alloc::string::{FromUtf8Error, String};
use alloc::vec::Vec;
use core::ops::Range;

use crate::ids::RequestId;
use crate::json::raw::{Json, Raw};
use crate::rpc::message::Message;
use crate::rpc::params::Members;
use crate::rpc::result::{HopMembers, ResultText};

/// The result of a response to a request of ours.
pub(crate) enum Answered<'a> {
    /// Part of a frame.
    Text(ResultText<'a>),
    /// In the buffer of its frame.
    Long(LongResult),
}

impl Answered<'_> {
    pub(crate) fn text(&self) -> ResultText<'_> {
        match self {
            Self::Text(result) => *result,
            Self::Long(result) => result.text(),
        }
    }
}

/// A result in the buffer of its frame.
pub(crate) struct LongResult {
    frame: String,
    /// Offsets of the result.
    start: usize,
    end: usize,
    hop: HopMembers,
}

impl LongResult {
    /// Reads a response with a result. Any other frame is handed back.
    pub(crate) fn read(
        frame: Vec<u8>,
        depth_max: usize,
    ) -> Result<(Option<RequestId>, Self), Vec<u8>> {
        let frame = String::from_utf8(frame).map_err(FromUtf8Error::into_bytes)?;
        let read = match Message::parse_text(&frame, depth_max, &mut Members::default()) {
            Message::Response { id, outcome: Ok(result) } => {
                let (at, hop) = result.place();
                Some((id, at, result.get().len(), hop))
            }
            Message::Response { .. }
            | Message::Request { .. }
            | Message::Notification { .. }
            | Message::Batch(_)
            | Message::Invalid { .. } => None,
        };
        match read {
            Some((id, start, length, hop)) => {
                Ok((id, Self { frame, start, end: start + length, hop }))
            }
            None => Err(frame.into_bytes()),
        }
    }

    fn text(&self) -> ResultText<'_> {
        let text = self.frame.get(self.start..self.end).unwrap_or_default();
        ResultText::seen(Raw::checked(text), self.start, self.hop)
    }

    /// The result as it is.
    pub(crate) fn into_json(mut self) -> Json {
        let is_bare = self.text().is_bare();
        self.frame.truncate(self.end);
        Json::in_frame(self.frame, self.start, is_bare)
    }

    /// The result with these parts of its text replaced, given in order.
    pub(crate) fn edited(mut self, edits: &[(Range<usize>, String)], is_bare: bool) -> Json {
        self.frame.truncate(self.end);
        for (range, text) in edits.iter().rev() {
            // The usual member is one of the last: little is moved.
            self.frame.replace_range(self.start + range.start..self.start + range.end, text);
        }
        Json::in_frame(self.frame, self.start, is_bare)
    }
}
