//! Words of the prose that hide the subject of a clause, found in comments, names and documents.

/// Words that stand for a subject without naming it. A clause has a thing of the code instead.
const WORDS: [&str; 6] = ["who", "whoever", "whom", "nobody", "somebody", "everybody"];

/// Comment lines and function names of Rust code with such a word, numbered from 1.
#[must_use]
pub fn in_code(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in code.lines().enumerate() {
        let has_word = match comment(line) {
            Some(text) => words_of(text).any(|word| is_forbidden(&word) || word == "what"),
            None => function_name(line).is_some_and(|name| name.split('_').any(is_forbidden)),
        };
        if has_word {
            found.push((at + 1, line.trim().to_owned()));
        }
    }
    found
}

/// As [`in_code`], for the text of Markdown outside code.
#[must_use]
pub fn in_markdown(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && words_of(line).any(|word| is_forbidden(&word)) {
            found.push((at + 1, line.trim().to_owned()));
        }
    }
    found
}

fn is_forbidden(word: &str) -> bool {
    WORDS.contains(&word)
}

/// Text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//")
}

/// Name of the function that a line declares.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_declaration = !before.contains('"') && (before.is_empty() || before.ends_with(' '));
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    is_declaration.then_some(&rest[..end])
}

/// Words of a text in lower case, without code between backticks and texts between quotes.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let plain = text.split('`').step_by(2).flat_map(|part| part.split('"').step_by(2));
    plain
        .flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .map(str::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: Vec<(usize, String)>) -> Vec<usize> {
        found.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn word_anywhere_in_a_comment_is_found() {
        let code = "/// Who asks.\nlet a = 1; let who = 2;\n// One. Then nobody does.\n//! Keeps what is\n";
        assert_eq!(lines(in_code(code)), [1, 3, 4]);
    }

    #[test]
    fn word_in_a_function_name_is_found() {
        let code = ["    pub fn told_who_asks(a: u8) {", "fn whole() {", "let nobody_fn = 1;"];
        assert_eq!(lines(in_code(&code.join("\n"))), [1]);
    }

    #[test]
    fn quoted_words_and_parts_of_words_do_not_count() {
        let code = "// The user `nobody`, the text \"who\", and the whole of whose part.\n";
        assert!(in_code(code).is_empty());
    }

    #[test]
    fn code_blocks_of_documents_do_not_count() {
        let text = "```text\nWho\n```\n\n| a | if nobody waits |\n\n- `who` is a name\n";
        assert_eq!(lines(in_markdown(text)), [5]);
    }
}
