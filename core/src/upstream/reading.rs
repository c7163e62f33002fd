//! Lists of an instance while they are read: each with its pages, its deadline and its end.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::collections::timer_queue::Armed;
use crate::ids::CallId;
use crate::outbox::requests::Topic;
use crate::time::Instant;
use crate::upstream::list::LISTS;
use crate::upstream::manifest::Freshness;
use crate::upstream::rewrite::{elements, member, text_member};

/// Pages of one list that are read at most.
const PAGES_MAX: usize = 1000;

/// Bounds of one list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListBounds {
    /// Elements at most.
    pub(crate) elements: usize,
    /// Bytes of all elements at most.
    pub(crate) bytes: usize,
}

/// The lists of an instance, by their position in [`LISTS`].
#[derive(Debug, Default)]
pub(crate) struct ListReading {
    states: [ReadingState; LISTS.len()],
    /// Whether one list is asked for after the other, since an unreadable answer could belong to
    /// several.
    one_at_a_time: bool,
    /// Topics whose clients were told of a difference since the reading began.
    pub(crate) announced: BTreeSet<Topic>,
    /// The earliest deadline of an open list.
    pub(crate) timer: Option<Armed>,
    /// Requests whose answers are of no use any more.
    given_up: Vec<CallId>,
}

/// How far one list is.
#[derive(Debug, Default)]
enum ReadingState {
    /// It is not being read.
    #[default]
    Idle,
    /// Waits for its turn, until this deadline at the longest.
    Queued(Instant),
    /// Requests that need the list wait for it.
    Open(Box<Pages>),
    /// Its deadline has passed. Its answer is taken if it still comes.
    Late(Box<Pages>),
}

/// The pages of a list so far.
#[derive(Debug)]
struct Pages {
    /// The request for the next page.
    call: CallId,
    deadline: Instant,
    count: usize,
    cursors: BTreeSet<Box<str>>,
    keys: BTreeSet<Box<str>>,
    read: ListRead,
    bytes: usize,
    /// Whether the list changed after its first page was asked for.
    has_changed: bool,
}

/// A list as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct ListRead {
    pub(crate) elements: Vec<Box<str>>,
    pub(crate) freshness: Freshness,
    /// Why it is not whole.
    pub(crate) problem: Option<String>,
    /// Elements that no client could name, which are left out.
    pub(crate) nameless: usize,
    /// Whether the server refused the first page.
    pub(crate) is_refused: bool,
}

/// Consequence of an answer.
#[derive(Debug)]
pub(crate) enum PageStep {
    /// It belongs to no list that is being read.
    Unasked,
    /// The next page is to be asked for with this cursor, as JSON text.
    Next(Box<str>),
    /// The list changed meanwhile and is to be read again.
    Again,
    /// The list has ended.
    Ended(ListRead),
}

impl ListReading {
    /// Wants lists to be read by a deadline. One that is being read is read again after it; the
    /// answer to a late one is not waited for any more.
    pub(crate) fn want(&mut self, at: usize, deadline: Instant) {
        match &mut self.states[at] {
            ReadingState::Open(pages) => pages.has_changed = true,
            ReadingState::Queued(_) => {}
            state @ ReadingState::Idle => *state = ReadingState::Queued(deadline),
            state @ ReadingState::Late(_) => {
                if let ReadingState::Late(pages) =
                    core::mem::replace(state, ReadingState::Queued(deadline))
                {
                    self.given_up.push(pages.call);
                }
            }
        }
    }

    /// Takes the requests whose answers are of no use any more, so that none is kept for a server
    /// that never answers.
    pub(crate) fn take_given_up(&mut self) -> Vec<CallId> {
        core::mem::take(&mut self.given_up)
    }

    /// The next list that is to be asked for now, and its deadline.
    pub(crate) fn next(&self) -> Option<(usize, Instant)> {
        if self.one_at_a_time
            && self.states.iter().any(|state| matches!(state, ReadingState::Open(_)))
        {
            return None;
        }
        self.states.iter().enumerate().find_map(|(at, state)| match state {
            ReadingState::Queued(deadline) => Some((at, *deadline)),
            ReadingState::Idle | ReadingState::Open(_) | ReadingState::Late(_) => None,
        })
    }

    /// The first page of a queued list was asked for.
    pub(crate) fn open(&mut self, at: usize, call: CallId) {
        if let ReadingState::Queued(deadline) = self.states[at] {
            self.states[at] = ReadingState::Open(Box::new(Pages {
                call,
                deadline,
                count: 1,
                cursors: BTreeSet::new(),
                keys: BTreeSet::new(),
                read: ListRead::default(),
                bytes: 0,
                has_changed: false,
            }));
        }
    }

    /// A further page of a list was asked for.
    pub(crate) fn next_page(&mut self, at: usize, call: CallId) {
        if let ReadingState::Open(pages) | ReadingState::Late(pages) = &mut self.states[at] {
            (pages.call, pages.count) = (call, pages.count + 1);
        }
    }

    /// Takes the answer to a request for a page; `None` is an error (UPS-10: all pages are read).
    pub(crate) fn take(
        &mut self,
        at: usize,
        call: CallId,
        page: Option<&str>,
        bounds: ListBounds,
    ) -> PageStep {
        let is_late = matches!(self.states[at], ReadingState::Late(_));
        let (ReadingState::Open(pages) | ReadingState::Late(pages)) = &mut self.states[at] else {
            return PageStep::Unasked;
        };
        if pages.call != call {
            return PageStep::Unasked;
        }
        if let Some(cursor) = pages.take(at, page, bounds) {
            return PageStep::Next(cursor);
        }
        let read = core::mem::take(&mut pages.read);
        // A list that changes with every answer ends at its deadline.
        let (again, deadline) = (pages.has_changed && !is_late, pages.deadline);
        self.states[at] = if again { ReadingState::Queued(deadline) } else { ReadingState::Idle };
        if again { PageStep::Again } else { PageStep::Ended(read) }
    }

    /// Ends the only open list, whose answer cannot be read; `None` if there are several, which are
    /// then read one after the other.
    pub(crate) fn end_unreadable(&mut self, problem: &str) -> Option<(usize, ListRead)> {
        let open = self.open_lists();
        if let [at] = *open.as_slice() {
            return self.end_open(at, problem);
        }
        self.one_at_a_time = true;
        for at in open {
            if let ReadingState::Open(pages) = &self.states[at] {
                self.given_up.push(pages.call);
                self.states[at] = ReadingState::Queued(pages.deadline);
            }
        }
        None
    }

    /// Ends the list that waits for the answer to a request, which cannot be read.
    pub(crate) fn end_call(&mut self, call: CallId, problem: &str) -> Option<(usize, ListRead)> {
        let is_of = |state: &ReadingState| matches!(state, ReadingState::Open(pages) | ReadingState::Late(pages) if pages.call == call);
        let at = self.states.iter().position(is_of)?;
        self.end_open(at, problem)
    }

    fn end_open(&mut self, at: usize, problem: &str) -> Option<(usize, ListRead)> {
        let (ReadingState::Open(pages) | ReadingState::Late(pages)) =
            core::mem::take(&mut self.states[at])
        else {
            return None;
        };
        self.given_up.push(pages.call);
        Some((at, ListRead { problem: Some(problem.into()), ..pages.read }))
    }

    /// Lists whose answers are waited for.
    pub(crate) fn open_lists(&self) -> Vec<usize> {
        let is_open = |at: &usize| matches!(self.states[*at], ReadingState::Open(_));
        (0..LISTS.len()).filter(is_open).collect()
    }

    /// The lists whose deadline has passed, each as far as it was read.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(usize, ListRead)> {
        let mut expired = Vec::new();
        for (at, state) in self.states.iter_mut().enumerate() {
            *state = match core::mem::take(state) {
                ReadingState::Open(pages) if pages.deadline <= now => {
                    let read = ListRead {
                        elements: pages.read.elements.clone(),
                        freshness: pages.read.freshness,
                        problem: Some("it was not answered in time".into()),
                        ..ListRead::default()
                    };
                    expired.push((at, read));
                    ReadingState::Late(pages)
                }
                ReadingState::Queued(deadline) if deadline <= now => {
                    let problem = Some("its turn did not come in time".into());
                    expired.push((at, ListRead { problem, ..ListRead::default() }));
                    ReadingState::Idle
                }
                other @ (ReadingState::Idle
                | ReadingState::Queued(_)
                | ReadingState::Open(_)
                | ReadingState::Late(_)) => other,
            };
        }
        expired
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let all = self.states.iter().filter_map(|state| match state {
            ReadingState::Queued(deadline) => Some(*deadline),
            ReadingState::Open(pages) => Some(pages.deadline),
            ReadingState::Idle | ReadingState::Late(_) => None,
        });
        all.min()
    }

    /// Whether a list is being read within its deadline.
    pub(crate) const fn is_reading(&self, at: usize) -> bool {
        matches!(self.states[at], ReadingState::Queued(_) | ReadingState::Open(_))
    }

    /// Whether the answer of a list is awaited after its deadline.
    pub(crate) const fn is_late(&self, at: usize) -> bool {
        matches!(self.states[at], ReadingState::Late(_))
    }

    /// Whether any list is being read within its deadline.
    pub(crate) fn is_active(&self) -> bool {
        (0..LISTS.len()).any(|at| self.is_reading(at))
    }
}

impl Pages {
    /// Takes one page. Returns the cursor of the next one, if that is to be read.
    fn take(&mut self, at: usize, page: Option<&str>, bounds: ListBounds) -> Option<Box<str>> {
        let list = &LISTS[at];
        let Some(page) = page else {
            self.read.is_refused = self.count == 1;
            if self.count > 1 {
                self.read.problem = Some(format!("page {} is an error", self.count));
            }
            return None;
        };
        self.read.freshness = match self.count {
            1 => Freshness::of(page),
            _ => self.read.freshness.with(Freshness::of(page)),
        };
        let before = self.read.elements.len();
        for element in member(page, list.member).map(elements).unwrap_or_default() {
            let Some(key) = text_member(element, list.key) else {
                self.read.nameless += 1;
                continue;
            };
            // UPS-11: a name or URI stands once.
            if !self.keys.insert(key) {
                continue;
            }
            let size = self.bytes + element.len();
            if self.read.elements.len() >= bounds.elements || size > bounds.bytes {
                self.read.problem = Some(format!(
                    "it has more than {} elements or {} bytes: the rest is left out",
                    bounds.elements, bounds.bytes
                ));
                return None;
            }
            self.bytes = size;
            self.read.elements.push(element.into());
        }
        self.next_cursor(page, self.read.elements.len() > before)
    }

    fn next_cursor(&mut self, page: &str, has_news: bool) -> Option<Box<str>> {
        let cursor = member(page, "nextCursor").filter(|cursor| cursor.starts_with('"'))?;
        if cursor == "\"\"" && !has_news {
            return None;
        }
        if !self.cursors.insert(cursor.into()) {
            self.read.problem = Some("the server repeats a cursor: the list ends there".into());
            return None;
        }
        if self.count >= PAGES_MAX {
            self.read.problem = Some(format!("it has more than {PAGES_MAX} pages"));
            return None;
        }
        Some(cursor.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::list::{RESOURCES, TOOLS};

    const BOUNDS: ListBounds = ListBounds { elements: 4, bytes: 1000 };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + core::time::Duration::from_millis(millis)
    }

    fn opened(list: usize) -> ListReading {
        let mut reading = ListReading::default();
        reading.want(list, at(10));
        assert_eq!(reading.next(), Some((list, at(10))));
        reading.open(list, CallId::new(1));
        reading
    }

    fn ended(step: PageStep) -> ListRead {
        let PageStep::Ended(read) = step else { panic!("the list has ended: {step:?}") };
        read
    }

    #[test]
    fn repeated_cursor_ends_a_list_and_is_told() {
        let mut reading = opened(RESOURCES);
        let page = r#"{"resources":[{"uri":"a"}],"nextCursor":"x"}"#;
        let step = reading.take(RESOURCES, CallId::new(1), Some(page), BOUNDS);
        assert!(matches!(step, PageStep::Next(cursor) if &*cursor == "\"x\""));
        reading.next_page(RESOURCES, CallId::new(2));
        let read = ended(reading.take(RESOURCES, CallId::new(2), Some(page), BOUNDS));
        assert_eq!(read.elements.len(), 1, "doubles are left out");
        assert!(read.problem.is_some_and(|why| why.contains("repeats a cursor")));
    }

    #[test]
    fn empty_cursor_ends_a_list_only_after_a_page_without_news() {
        let mut reading = opened(TOOLS);
        let page = r#"{"tools":[{"name":"a"}],"nextCursor":""}"#;
        let step = reading.take(TOOLS, CallId::new(1), Some(page), BOUNDS);
        assert!(matches!(step, PageStep::Next(_)));
        reading.next_page(TOOLS, CallId::new(2));
        let read = ended(reading.take(TOOLS, CallId::new(2), Some(page), BOUNDS));
        assert_eq!((read.elements.len(), read.problem), (1, None));
    }

    #[test]
    fn cut_list_is_told() {
        let mut reading = opened(TOOLS);
        let tools: Vec<String> = (0..5).map(|n| format!("{{\"name\":\"t{n}\"}}")).collect();
        let page = format!("{{\"tools\":[{}]}}", tools.join(","));
        let read = ended(reading.take(TOOLS, CallId::new(1), Some(&page), BOUNDS));
        assert_eq!(read.elements.len(), 4);
        assert!(read.problem.is_some_and(|why| why.contains("the rest is left out")));
    }

    /// A client may refuse a whole list, of all servers, for one element without a name.
    #[test]
    fn elements_without_a_name_are_left_out_and_counted() {
        let mut reading = opened(RESOURCES);
        let page = r#"{"resources":[1,null,{},{"uri":2},"a",{"uri":"a"}]}"#;
        let read = ended(reading.take(RESOURCES, CallId::new(1), Some(page), BOUNDS));
        assert_eq!(read.elements, [r#"{"uri":"a"}"#.into()]);
        assert_eq!((read.nameless, read.problem), (5, None));
    }

    #[test]
    fn late_list_is_taken_when_it_comes() {
        let mut reading = opened(TOOLS);
        assert!(reading.expire(at(9)).is_empty() && reading.is_reading(TOOLS));
        let expired = reading.expire(at(10));
        assert!(matches!(&expired[..], [(TOOLS, read)] if read.problem.is_some()));
        assert!(reading.is_late(TOOLS) && !reading.is_active());
        let page = r#"{"tools":[{"name":"a"}]}"#;
        let stale = reading.take(TOOLS, CallId::new(7), Some(page), BOUNDS);
        assert!(matches!(stale, PageStep::Unasked));
        let read = ended(reading.take(TOOLS, CallId::new(1), Some(page), BOUNDS));
        assert_eq!((read.elements.len(), read.problem), (1, None));
    }

    #[test]
    fn late_list_that_is_wanted_again_gives_up_its_request() {
        let mut reading = opened(TOOLS);
        assert_eq!(reading.expire(at(10)).len(), 1);
        reading.want(TOOLS, at(20));
        assert_eq!(reading.take_given_up(), [CallId::new(1)]);
        assert_eq!(reading.next(), Some((TOOLS, at(20))));
    }

    #[test]
    fn unreadable_answer_ends_the_only_open_list() {
        let mut reading = opened(TOOLS);
        reading.want(RESOURCES, at(10));
        reading.open(RESOURCES, CallId::new(2));
        assert!(reading.end_unreadable("too deep").is_none(), "it could be of both");
        assert_eq!(reading.next(), Some((TOOLS, at(10))));
        reading.open(TOOLS, CallId::new(3));
        assert_eq!(reading.next(), None, "one after the other");
        let (list, read) = reading.end_unreadable("too deep").expect("there is one");
        assert_eq!((list, read.problem.as_deref()), (TOOLS, Some("too deep")));
        let given_up = [1, 2, 3].map(CallId::new);
        assert_eq!(reading.take_given_up(), given_up, "none is kept");
        assert_eq!(reading.next(), Some((RESOURCES, at(10))));
    }
}
