//! YAML, read into values with byte ranges.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::document::{DEPTH_MAX, Member, Node, Value};
use super::error::HostFileError;

/// Reads a text.
///
/// # Errors
/// If it is not one YAML document, or is nested too deeply.
pub(super) fn parse(text: &str) -> Result<Node, HostFileError> {
    let mut places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    places.push(text.len());
    let mut reader = Reader { text, places, open: Vec::new(), root: None, documents: 0 };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| invalid(&error))?;
        reader.take(event, span)?;
    }
    let empty = Node { span: 0..0, value: Value::Map(Vec::new()) };
    Ok(reader.root.unwrap_or(empty))
}

fn invalid(error: &ScanError) -> HostFileError {
    let what = format!("this is not valid YAML: {}", error.info());
    let hint = "correct the file; its host cannot read it either";
    HostFileError::new(error.marker().line(), what, hint)
}

/// A list or map that is being read.
struct Open {
    start: usize,
    is_map: bool,
    /// Whether an anchor or a tag binds it to its place.
    is_bound: bool,
    /// Items; keys and values in turn for a map.
    nodes: Vec<Node>,
}

struct Reader<'t> {
    text: &'t str,
    /// Bytes of the characters: the parser counts characters.
    places: Vec<usize>,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
}

impl Reader<'_> {
    fn bytes(&self, span: Span) -> Range<usize> {
        let byte = |at: usize| self.places.get(at).copied().unwrap_or(self.text.len());
        byte(span.start.index())..byte(span.end.index())
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), HostFileError> {
        let bytes = self.bytes(span);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let what = "the file has several YAML documents";
                    let hint = "keep one; hosts differ in which one they use";
                    return Err(HostFileError::new(span.start.line(), what, hint));
                }
            }
            Event::Alias(_) => self.add(Node { span: bytes, value: Value::Bound(String::new()) }),
            Event::Scalar(value, style, anchor, tag) => {
                let is_bound = anchor != 0 || tag.is_some();
                let node = self.scalar(value.into_owned(), style, is_bound, bytes);
                self.add(node);
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(false, anchor != 0 || tag.is_some(), bytes.start, span)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.begin(true, anchor != 0 || tag.is_some(), bytes.start, span)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(bytes.end),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn scalar(&self, value: String, style: ScalarStyle, is_bound: bool, at: Range<usize>) -> Node {
        let written = self.text.get(at.clone()).unwrap_or_default();
        // The parser counts spaces behind a text, and a comment behind a quoted one, as a part of it.
        let written = match style {
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => quoted(written),
            ScalarStyle::Plain => written.trim_end(),
            ScalarStyle::Literal | ScalarStyle::Folded => written,
        };
        let at = at.start..at.start + written.len();
        let is_bound = is_bound || written.contains('\n');
        let found = match style {
            _ if is_bound => Value::Bound(value),
            ScalarStyle::Literal | ScalarStyle::Folded => Value::Bound(value),
            ScalarStyle::Plain if at.is_empty() || ["~", "null"].contains(&&*value) => Value::Null,
            ScalarStyle::Plain if value == "true" => Value::Flag(true),
            ScalarStyle::Plain if value == "false" => Value::Flag(false),
            ScalarStyle::Plain | ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
                Value::Text(value)
            }
        };
        Node { span: at, value: found }
    }

    fn begin(
        &mut self,
        is_map: bool,
        is_bound: bool,
        start: usize,
        span: Span,
    ) -> Result<(), HostFileError> {
        if self.open.len() >= DEPTH_MAX {
            let what = format!("this is nested deeper than {DEPTH_MAX} levels");
            return Err(HostFileError::new(span.start.line(), what, "name another file"));
        }
        self.open.push(Open { start, is_map, is_bound, nodes: Vec::new() });
        Ok(())
    }

    fn end(&mut self, end: usize) {
        let Some(open) = self.open.pop() else { return };
        let is_flow = self.text.get(open.start..).is_some_and(|it| it.starts_with(['[', '{']));
        // A block ends where the next line begins.
        let last = open.nodes.iter().map(|node| node.span.end).max();
        let end = match is_flow {
            true => self.bracket(last.unwrap_or(open.start + 1)..end),
            false => last.unwrap_or(open.start),
        };
        let span = open.start..end.max(open.start);
        let value = match (open.is_bound, open.is_map) {
            (true, _) => Value::Bound(String::new()),
            (false, false) => Value::List(open.nodes),
            (false, true) => members(open.nodes),
        };
        self.add(Node { span, value });
    }

    /// The end of the bracket that closes a list or map, behind the last of its nodes. The parser counts
    /// spaces and a comment behind it as a part of it.
    fn bracket(&self, rest: Range<usize>) -> usize {
        let mut is_comment = false;
        let closes = |(_, c): &(usize, char)| {
            is_comment = *c == '#' || is_comment && *c != '\n';
            !is_comment && matches!(c, ']' | '}')
        };
        let written = self.text.get(rest.clone()).unwrap_or_default();
        let found = written.char_indices().find(closes);
        found.map_or(rest.end, |(at, _)| rest.start + at + 1)
    }

    fn add(&mut self, mut node: Node) {
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return;
        };
        if node.span.is_empty() && open.is_map {
            // The parser places a value that is not written at the next token.
            let at = open.nodes.last().map_or(node.span.start, |key| key.span.end);
            node.span = at..at;
        }
        open.nodes.push(node);
    }
}

/// The quoted text at the start of a text, with its quotes; all of the text if it has no end.
fn quoted(text: &str) -> &str {
    let mut rest = text.char_indices().peekable();
    let Some((_, quote)) = rest.next() else { return text };
    while let Some((at, c)) = rest.next() {
        let is_escape = match quote {
            '"' => c == '\\',
            _ => c == quote && rest.peek().is_some_and(|(_, next)| *next == quote),
        };
        if is_escape {
            rest.next();
        } else if c == quote {
            return text.get(..=at).unwrap_or(text);
        }
    }
    text
}

fn members(nodes: Vec<Node>) -> Value {
    let (mut members, mut nodes) = (Vec::new(), nodes.into_iter());
    while let (Some(key), Some(node)) = (nodes.next(), nodes.next()) {
        let name = key.scalar().unwrap_or_default();
        members.push(Member { name, key: key.span, node });
    }
    Value::Map(members)
}
