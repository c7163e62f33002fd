//! Sentences that hide their subject, found in comments and documents.

/// Words that no sentence begins with; a sentence has a thing of the code as its subject.
const SUBJECTS: [&str; 6] = ["Who", "Whoever", "Whom", "Nobody", "Somebody", "Everybody"];
/// Verbs that make a clause of a leading "What".
const AFTER_WHAT: [&str; 4] = ["is", "was", "has", "can"];

/// Lines of Rust code with a comment in which such a sentence begins, numbered from 1.
#[must_use]
pub fn in_comments(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_sentence = false;
    for (at, line) in code.lines().enumerate() {
        let Some(text) = comment(line) else {
            in_sentence = false;
            continue;
        };
        if offends(text, &mut in_sentence) {
            found.push((at + 1, line.trim().to_owned()));
        }
    }
    found
}

/// As [`in_comments`], for Markdown; code blocks do not count.
#[must_use]
pub fn in_markdown(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut in_sentence, mut in_code) = (false, false);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let begins_anew = line.trim_start().starts_with(['#', '|', '-', '*']);
        if in_code || line.trim().is_empty() || begins_anew {
            in_sentence = false;
        }
        let is_row = line.trim_start().starts_with('|');
        let is_found = line.split('|').any(|cell| {
            // Each cell of a table is a text of its own.
            in_sentence &= !is_row;
            offends(cell, &mut in_sentence)
        });
        if !in_code && is_found {
            found.push((at + 1, line.trim().to_owned()));
        }
    }
    found
}

/// Text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim())
}

/// Whether such a sentence begins on this line. `in_sentence` says that the line before ended in
/// the middle of a sentence, and is set for the next one.
fn offends(line: &str, in_sentence: &mut bool) -> bool {
    let line = line.trim();
    let mut rest = line;
    let mut begins = !std::mem::replace(in_sentence, !line.is_empty() && !ends(line));
    while !rest.is_empty() {
        if begins && has_no_subject(rest) {
            return true;
        }
        begins = true;
        rest = [". ", "? ", "! ", ": ", "; "]
            .iter()
            .filter_map(|end| rest.find(end))
            .min()
            .map_or("", |at| rest[at + 2..].trim_start());
    }
    false
}

fn ends(line: &str) -> bool {
    line.ends_with(['.', '?', '!', ':', '|', '`'])
}

fn has_no_subject(sentence: &str) -> bool {
    let sentence = sentence.trim_start_matches(['*', '-', '#', '"', '(', ' ', '/']);
    let mut words = sentence.split(|c: char| !c.is_ascii_alphanumeric());
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    SUBJECTS.contains(&first) || (first == "What" && AFTER_WHAT.contains(&second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: Vec<(usize, String)>) -> Vec<usize> {
        found.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_sentence_without_a_subject_is_found() {
        let code = "/// Who asks.\nlet a = 1; // Who\n// One. Nobody does.\n//! What is kept,\n\
                    // What the store keeps.\n";
        assert_eq!(lines(in_comments(code)), [1, 3, 4]);
    }

    #[test]
    fn a_name_in_the_middle_of_a_sentence_is_not() {
        let code = "// The person\n// Who is not at the start of a sentence.\n";
        assert!(in_comments(code).is_empty());
    }

    #[test]
    fn code_blocks_of_documents_do_not_count() {
        let text = "```text\nWho\n```\n\n| a | Nobody waits |\n\n- Somebody\n";
        assert_eq!(lines(in_markdown(text)), [5, 7]);
    }
}
