//! Terminal output as plain text: no escape sequences, no lines that were written over.

/// Text being written as a terminal shows it, without the screen.
///
/// Escape sequences and other control characters are dropped, a carriage return begins the line
/// anew, and a backspace takes one character back. What a progress bar shows last is what is left
/// of it.
#[derive(Debug, Default)]
pub struct PlainText {
    text: String,
    /// Where the current line begins.
    line: usize,
    /// A carriage return came: the next character begins the line anew.
    returned: bool,
    escape: Escape,
}

/// How far an escape sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Escape {
    #[default]
    None,
    /// ESC.
    Begun,
    /// ESC and an intermediate byte: one more follows.
    Intermediate,
    /// CSI, up to its final byte.
    Control,
    /// OSC, DCS, SOS, PM or APC, up to BEL or ST.
    String,
    /// ESC within such a string.
    Ending,
}

impl PlainText {
    /// Takes the next characters.
    pub fn push(&mut self, text: &str) {
        for c in text.chars() {
            self.take(c);
        }
    }

    /// The text so far.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    fn take(&mut self, c: char) {
        match (self.escape, c) {
            (Escape::None, _) => self.show(c),
            (Escape::Begun, '[') => self.escape = Escape::Control,
            (Escape::Begun, ']' | 'P' | 'X' | '^' | '_') => self.escape = Escape::String,
            (Escape::Begun, ' '..='/') => self.escape = Escape::Intermediate,
            (Escape::Intermediate, ' '..='/') => {}
            (Escape::Control, ' '..='?') => {}
            (Escape::String, '\x07') => self.escape = Escape::None,
            (Escape::String, '\x1b') => self.escape = Escape::Ending,
            // A string without an end, and a sequence without one, end with the line: what follows
            // a torn escape is text.
            (
                Escape::Begun | Escape::Intermediate | Escape::Control | Escape::String,
                '\n' | '\r',
            ) => {
                self.escape = Escape::None;
                self.show(c);
            }
            (Escape::String, _) => {}
            (Escape::Ending, '\\') => self.escape = Escape::None,
            (Escape::Ending, _) => self.escape = Escape::String,
            (Escape::Control | Escape::Begun | Escape::Intermediate, '\x1b') => {
                self.escape = Escape::Begun;
            }
            (Escape::Begun | Escape::Intermediate | Escape::Control, _) => {
                self.escape = Escape::None;
            }
        }
    }

    fn show(&mut self, c: char) {
        match c {
            '\x1b' => self.escape = Escape::Begun,
            '\u{9b}' => self.escape = Escape::Control,
            '\n' => {
                self.text.push('\n');
                (self.line, self.returned) = (self.text.len(), false);
            }
            '\r' => self.returned = true,
            '\x08' => {
                if self.text.len() > self.line {
                    self.text.pop();
                }
            }
            _ if c.is_control() && c != '\t' => {}
            _ => {
                if std::mem::take(&mut self.returned) {
                    self.text.truncate(self.line);
                }
                self.text.push(c);
            }
        }
    }
}

/// Output as plain text; bytes that are not UTF-8 are replaced.
#[must_use]
pub fn plain_text(bytes: &[u8]) -> String {
    let mut plain = PlainText::default();
    plain.push(&String::from_utf8_lossy(bytes));
    plain.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_rewritten_lines_are_removed() {
        for (output, text) in [
            ("plain\n", "plain\n"),
            ("\x1b[1;31merror\x1b[0m: no\n", "error: no\n"),
            ("10%\r20%\r100%\ndone\n", "100%\ndone\n"),
            ("long line\rx\n", "x\n"),
            ("dos\r\nlines\r\n", "dos\nlines\n"),
            ("twice\r\r\n", "twice\n"),
            ("last\r", "last"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;https://a.b\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1b(B\x1b=a\x1b7b", "ab"),
            ("abc\x08\x08d\n\x08e", "ad\ne"),
            ("a\tb\x00\x01c\x7f", "a\tbc"),
            ("torn \x1b[31", "torn "),
            ("torn \x1b]never\nnext", "torn \nnext"),
            ("\x1b[2K\r   Building [=> ] 3/9\x1b[K\r   Finished\n", "   Finished\n"),
            ("\u{9b}31mred", "red"),
        ] {
            assert_eq!(plain_text(output.as_bytes()), text, "{output:?}");
        }
        assert_eq!(plain_text(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn the_text_does_not_depend_on_the_pieces() {
        let output = "a\x1b[1mb\rc\x1b]0;t\x07d\r\ne\x1b";
        for at in output.char_indices().map(|(at, _)| at) {
            let (first, rest) = output.split_at(at);
            let mut plain = PlainText::default();
            plain.push(first);
            plain.push(rest);
            assert_eq!(plain.finish(), plain_text(output.as_bytes()), "{at}");
        }
    }
}
