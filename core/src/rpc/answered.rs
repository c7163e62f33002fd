//! The result of a response in the buffer that its frame came in.

use alloc::string::String;
use core::ops::Range;

use crate::ids::RequestId;
use crate::json::raw::{Json, Raw};
use crate::rpc::long_line::LongLine;
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

/// A response with a result that was found in a text.
struct FoundResult {
    id: Option<RequestId>,
    /// Offsets of the result.
    start: usize,
    end: usize,
    hop: HopMembers,
}

impl FoundResult {
    /// `None` also for a result with line breaks between its values: they cannot be sent as they are.
    fn in_text(text: &str, depth_max: usize) -> Option<Self> {
        match Message::parse_text(text, depth_max, &mut Members::default()) {
            Message::Response { id, outcome: Ok(result) } => {
                let (start, hop) = result.place();
                let is_one_line = memchr::memchr2(b'\n', b'\r', result.get().as_bytes()).is_none();
                let end = start + result.get().len();
                is_one_line.then_some(Self { id, start, end, hop })
            }
            Message::Response { .. }
            | Message::Request { .. }
            | Message::Notification { .. }
            | Message::Batch(_)
            | Message::Invalid { .. } => None,
        }
    }

    /// The same in the whole line, for one in its skeleton. `None` if a long string is outside the
    /// result: it may be the id.
    fn in_line(self, line: &LongLine) -> Option<Self> {
        let Self { id, start, end, hop } = self;
        let hop = hop.moved(|offset| line.offset(start + offset) - line.offset(start));
        let (start, end) = (line.offset(start), line.offset(end));
        let is_within = |(first, last): &(usize, usize)| start <= *first && *last <= end;
        line.strings().iter().all(is_within).then_some(Self { id, start, end, hop })
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
    /// Reads a response with a result. Any other line is handed back.
    pub(crate) fn read(
        line: LongLine,
        depth_max: usize,
    ) -> Result<(Option<RequestId>, Self), LongLine> {
        let whole = || FoundResult::in_text(line.text(), depth_max);
        let found = match line.skeleton() {
            // A skeleton of another message is that of another line.
            Some(skeleton) => FoundResult::in_text(&skeleton, depth_max)
                .and_then(|found| found.in_line(&line).or_else(whole)),
            None => whole(),
        };
        match found {
            Some(FoundResult { id, start, end, hop }) => {
                Ok((id, Self { frame: line.into_text(), start, end, hop }))
            }
            None => Err(line),
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

/// For tests: the result, its type and its `_meta`.
#[cfg(test)]
impl core::fmt::Debug for LongResult {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = self.text().get();
        let part = |range: Range<usize>| text.get(range);
        let [kind, meta] = [self.hop.kind(), self.hop.meta()].map(|place| part(place?.member()));
        write!(f, "{text:?} {kind:?} {meta:?}")
    }
}
