//! Tests of the arguments of a call.

use super::violation::ERROR_CHARS_MAX;
use super::*;

const SCHEMA: &str = r#"{"type":"object","properties":{
    "package":{"type":"string"},
    "jobs":{"type":"integer","minimum":1,"default":4},
    "deep":{"type":"object"},
    "list":{"type":["array","null"],"uniqueItems":true},
    "fast":{"type":"boolean"}
  },"required":["package"],"additionalProperties":false}"#;

fn rules() -> Arguments {
    Arguments::new(SCHEMA).expect("a valid schema")
}

fn template(text: &str) -> Template {
    Template::parse(text).expect("a valid template")
}

fn command(elements: &[&str]) -> CommandTemplate {
    CommandTemplate {
        program: "prog".into(),
        elements: elements.iter().map(|text| template(text)).collect(),
        cwd: None,
        env: Vec::new(),
        stdin: None,
    }
}

fn argv(elements: &[&str], arguments: &str) -> Result<Vec<String>, String> {
    let filled = command(elements).fill(&rules(), Some(arguments))?;
    Ok(filled.argv.into_iter().map(|text| text.into_string().expect("UTF-8")).collect())
}

#[test]
fn valid_arguments_are_accepted() {
    for arguments in [
        r#"{"package":"a"}"#,
        r#"{"package":"","jobs":1,"deep":{"x":[1]},"list":[1,2],"fast":true}"#,
        r#" { "package" : "a" , "list" : null } "#,
    ] {
        assert_eq!(rules().check(Some(arguments)), Ok(()), "{arguments}");
    }
    assert_eq!(Arguments::new(r#"{"type":"object"}"#).expect("valid").check(None), Ok(()));
}

/// JSON has one kind of number: an integer is written as digits, however the client spells it.
#[test]
fn integer_is_written_as_digits() {
    for (spelled, digits) in [
        ("10", "10"),
        ("10.0", "10"),
        ("1e2", "100"),
        ("1.5E1", "15"),
        ("120e-1", "12"),
        ("18446744073709551616.0", "18446744073709551616"),
    ] {
        let arguments = format!(r#"{{"package":"a","jobs":{spelled}}}"#);
        assert_eq!(argv(&["-j{jobs}"], &arguments).expect(spelled)[1..], [format!("-j{digits}")]);
    }
    for spelled in ["1e400", "1e99999999999999999999", "1.5"] {
        let arguments = format!(r#"{{"package":"a","jobs":{spelled}}}"#);
        let checked = rules().check(Some(&arguments));
        assert!(checked.is_err() || argv(&["-j{jobs}"], &arguments).is_err(), "{spelled}");
    }
}

/// An optional `null` argument counts as omitted, and its default applies; if its schema allows
/// `null`, it keeps that value.
#[test]
fn null_argument_counts_as_omitted() {
    for (given, accepted) in [
        (r#"{"package":"a","jobs":null}"#, r#"{"package":"a"}"#),
        (r#"{"fast":null,"package":"a","deep":null}"#, r#"{"package":"a"}"#),
        (r#"{"list":null,"package":"a"}"#, r#"{"list":null,"package":"a"}"#),
        (
            r#"{"package":"n\u0075ll","jobs":1.0,"fast":null}"#,
            r#"{"jobs":1.0,"package":"n\u0075ll"}"#,
        ),
    ] {
        assert_eq!(rules().accept(given).as_deref(), Ok(accepted), "{given}");
        assert_eq!(rules().check(Some(given)), Ok(()), "{given}");
    }
    for (elements, arguments, expected) in [
        (&["-j{jobs}"][..], r#"{"package":"a","jobs":null}"#, &["prog", "-j4"][..]),
        (&["x", "fast={fast}"], r#"{"package":"a","fast":null}"#, &["prog", "x"]),
    ] {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(argv(elements, arguments), Ok(expected), "{elements:?} {arguments}");
    }
    for (arguments, why) in [
        (r#"{"package":null}"#, "arguments/package: null is not of type \"string\""),
        (r#"{"package":null,"jobs":null}"#, "arguments/package: null is not of type \"string\""),
        (r#"{"jobs":null}"#, "arguments: \"package\" is a required property"),
        (
            r#"{"package":"a","jobs":0,"fast":null}"#,
            "arguments/jobs: 0 is less than the minimum of 1",
        ),
        (
            r#"{"package":"a","x":null}"#,
            "arguments: Additional properties are not allowed ('x' was unexpected)",
        ),
    ] {
        assert_eq!(rules().check(Some(arguments)), Err(why.to_owned()), "{arguments}");
    }
    let plain =
        r#"{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"}}}"#;
    let plain = Arguments::new(plain).expect("a valid schema");
    assert_eq!(plain.accept(r#"{"text":"x","n":null}"#).as_deref(), Ok(r#"{"text":"x"}"#));
}

#[test]
fn violation_is_reported_with_its_path() {
    for (arguments, why) in [
        (r#"{"package":7}"#, "arguments/package: 7 is not of type \"string\""),
        ("{}", "arguments: \"package\" is a required property"),
        ("[]", "arguments: [] is not of type \"object\""),
        ("null", "arguments: null is not of type \"object\""),
        (
            r#"{"package":"a","x":1}"#,
            "arguments: Additional properties are not allowed ('x' was unexpected)",
        ),
        (r#"{"package":"a","jobs":0}"#, "arguments/jobs: 0 is less than the minimum of 1"),
        (r#"{"package":"a","list":[1,1]}"#, "arguments/list: [1,1] has non-unique elements"),
        (r#"{"package":"a""#, "arguments: EOF while parsing an object at line 1 column 14"),
        (
            r#"{"package":"a","package":"b"}"#,
            "arguments: duplicate key \"package\" at line 1 column 24",
        ),
        (
            r#"{"package":7,"jobs":"x","fast":1,"deep":2}"#,
            "arguments/deep: 2 is not of type \"object\"; \
             arguments/fast: 1 is not of type \"boolean\"; \
             arguments/jobs: \"x\" is not of type \"integer\"",
        ),
    ] {
        assert_eq!(rules().check(Some(arguments)), Err(why.to_owned()), "{arguments}");
    }
    let why = rules().check(None).expect_err("package is missing");
    assert_eq!(why, "arguments: \"package\" is a required property");
}

#[test]
fn error_text_is_bounded() {
    let long = "ü".repeat(1_000_000);
    for arguments in [
        format!(r#"{{"package":["{long}"],"jobs":"{long}","fast":"{long}","deep":"{long}"}}"#),
        format!(r#"{{"package":"a","{long}":1}}"#),
        format!(r#"{{"package":"a","{long}":1,"{long}":2}}"#),
        format!("{{\"package\":\"{long}"),
        format!("[{}1]", "1,".repeat(200_000)),
    ] {
        let why = rules().check(Some(&arguments)).expect_err("refused");
        assert!(why.chars().count() <= ERROR_CHARS_MAX, "{} characters", why.chars().count());
        assert!(why.starts_with("arguments"), "{why}");
    }
    let three = rules().check(Some(r#"{"package":1,"jobs":"\u001b[2Jx","fast":1}"#));
    let why = three.expect_err("refused");
    assert_eq!(why.matches("; ").count(), 2, "{why}");
    assert!(!why.contains('\u{1b}'));
}

#[test]
fn value_is_one_whole_argument() {
    for (elements, arguments, expected) in [
        (&["{package}"][..], r#"{"package":"a b; $(rm) '\"*"}"#, &["prog", "a b; $(rm) '\"*"][..]),
        (&["{package}"], r#"{"package":""}"#, &["prog", ""]),
        (&["{package}"], r#"{"package":"{jobs}"}"#, &["prog", "{jobs}"]),
        (&["-p={package}", "-j{jobs}"], r#"{"package":"a","jobs":7}"#, &["prog", "-p=a", "-j7"]),
        // A default replaces a missing argument; without a default the element is dropped.
        (&["-j{jobs}"], r#"{"package":"a"}"#, &["prog", "-j4"]),
        (&["x", "fast={fast}", "y"], r#"{"package":"a"}"#, &["prog", "x", "y"]),
        (&["fast={fast}"], r#"{"package":"a","fast":false}"#, &["prog", "fast=false"]),
        (&["{list}", "{package}{list}"], r#"{"package":"a","list":null}"#, &["prog"]),
        (
            &["{deep}", "{list}"],
            r#"{"package":"a","deep":{ "z" : 1.50, "a":"x y" },"list":[ 1, 2 ]}"#,
            &["prog", r#"{"z":1.50,"a":"x y"}"#, "[1,2]"],
        ),
        (&["{{{package}}}"], r#"{"package":"a"}"#, &["prog", "{a}"]),
    ] {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(argv(elements, arguments), Ok(expected), "{elements:?} {arguments}");
    }
}

#[test]
fn arguments_unfit_for_a_command_line_are_rejected() {
    let why = argv(&["{package}"], r#"{"package":"a\u0000b"}"#).expect_err("NUL");
    assert_eq!(
        why,
        "arguments/package: contains a NUL byte, which a command argument, variable or path cannot"
    );
    let fits = "x".repeat(ELEMENT_BYTES_MAX - 2);
    assert!(argv(&["p={package}"], &format!(r#"{{"package":"{fits}"}}"#)).is_ok());
    let why = argv(&["p={package}"], &format!(r#"{{"package":"{fits}y"}}"#)).expect_err("long");
    assert_eq!(
        why,
        "arguments: `p={package}` makes a command argument of 131072 bytes; the system takes at \
         most 131071 (a tool that reads its standard input takes any number)"
    );
    let why = argv(&["{package}"; 9], &format!(r#"{{"package":"{fits}"}}"#)).expect_err("many");
    assert_eq!(why, "arguments: the command has 1179635 bytes; the limit is 1048576");
    let why = argv(&["{package}"], r#"{"package":3}"#).expect_err("fill checks too");
    assert_eq!(why, "arguments/package: 3 is not of type \"string\"");
}

/// The longest accepted element is accepted by the system.
#[test]
fn longest_element_is_accepted_by_the_system() {
    let longest = "x".repeat(ELEMENT_BYTES_MAX);
    let run = |text: &str| std::process::Command::new("true").arg(text).status();
    assert!(run(&longest).expect("it starts").success());
    if cfg!(target_os = "linux") {
        assert!(run(&format!("{longest}x")).is_err(), "the bound could be higher");
    }
}

#[test]
fn stdin_env_and_cwd_are_substituted() {
    let mut command = command(&[]);
    command.stdin = Some(template("<{package}>"));
    command.env = vec![("P".into(), template("{package}")), ("F".into(), template("{fast}"))];
    command.cwd = Some(CwdTemplate { base: "/base".into(), rest: template("{package}/x") });
    let filled = command.fill(&rules(), Some(r#"{"package":"a"}"#)).expect("filled");
    assert_eq!(filled.stdin.as_deref(), Some(&b"<a>"[..]));
    assert_eq!(filled.env, [("P".to_owned(), "a".to_owned())]);
    let cwd = filled.cwd.expect("a directory");
    assert_eq!((cwd.base, cwd.below), ("/base".into(), Some("a/x".into())));

    command.cwd = Some(CwdTemplate { base: "/base".into(), rest: template("{fast}") });
    command.stdin = Some(template("{fast}"));
    let filled = command.fill(&rules(), Some(r#"{"package":"a"}"#)).expect("filled");
    assert_eq!((filled.cwd, filled.stdin), (None, None));

    // Standard input may contain bytes that an argument cannot.
    command.env.clear();
    command.stdin = Some(template("{package}"));
    let filled = command.fill(&rules(), Some(r#"{"package":"a\u0000b"}"#)).expect("filled");
    assert_eq!(filled.stdin.as_deref(), Some(&b"a\0b"[..]));
}

#[test]
fn working_directory_stays_below_its_base() {
    let cwd = |rest: &str, package: &str| {
        let mut command = command(&[]);
        command.cwd = Some(CwdTemplate { base: "/base".into(), rest: template(rest) });
        let arguments = serde_json::json!({ "package": package }).to_string();
        let filled = command.fill(&rules(), Some(&arguments))?;
        let cwd = filled.cwd.expect("a directory");
        Ok::<_, String>((cwd.base.display().to_string(), cwd.below.expect("chosen")))
    };
    let at = |base: &str, below: &str| Ok((base.to_owned(), below.into()));
    assert_eq!(cwd("{package}", "a/b"), at("/base", "a/b"));
    assert_eq!(cwd("{package}", "/etc"), at("/base", "etc"));
    assert_eq!(cwd("{package}", "//etc"), at("/base", "etc"));
    assert_eq!(cwd("a/{package}", "/etc"), at("/base/a", "etc"));
    assert_eq!(cwd("{package}", "..a"), at("/base", "..a"));
    for (rest, package, written) in [
        ("{package}", "../x", "/base"),
        (".{package}", ".", "/base"),
        ("a/{package}", "b/..", "/base/a"),
        ("a/b/c{package}", "/../x", "/base/a/b"),
    ] {
        let why = cwd(rest, package).expect_err(package);
        let below = "arguments: `..` in the working directory, which must stay below";
        assert_eq!(why, format!("{below} {written}"));
    }
}

#[test]
fn unusable_schema_is_rejected_with_its_path() {
    for (schema, why) in [
        ("[]", "schema: MCP requires \"type\": \"object\" at the top level"),
        (r#"{"type":"array"}"#, "schema: MCP requires \"type\": \"object\" at the top level"),
        (r#"{"type":"object","properties":3}"#, "schema/properties: must be an object"),
        (
            r#"{"type":"object","properties":{"a":true}}"#,
            "schema/properties/a: MCP requires an object",
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"text"}}}"#,
            "schema/properties/a/type: \"text\" is not valid under any of the schemas listed in \
             the 'anyOf' keyword",
        ),
        (
            r#"{"type":"object","properties":{"a":{"$ref":"https://example.com/s"}}}"#,
            "schema/properties/a/$ref: \"https://example.com/s\" leaves the schema; only \
             references within it (\"#…\") are allowed",
        ),
        (
            r#"{"type":"object","allOf":[{"$ref":"s.json"}]}"#,
            "schema/allOf/0/$ref: \"s.json\" leaves the schema; only references within it (\"#…\") are allowed",
        ),
        (
            r##"{"type":"object","$ref":"#/$defs/no"}"##,
            "schema: Pointer '/$defs/no' does not exist",
        ),
        (
            r#"{"type":"object","properties":{"a":{"pattern":"(?=x)"}}}"#,
            "schema/properties/a/pattern: \"(?=x)\" is not a \"regex\"",
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"integer","default":"x"}}}"#,
            "default/a: \"x\" is not of type \"integer\"",
        ),
        (
            r#"{"type":"object","type":"object"}"#,
            "schema: duplicate key \"type\" at line 1 column 23",
        ),
        (
            r#"{"type":"object","$schema":"https://example.com/meta"}"#,
            "schema: Unknown meta-schema: 'https://example.com/meta'. Custom meta-schemas must be \
             registered in the registry before use",
        ),
    ] {
        assert_eq!(
            Arguments::new(schema).map(|_| ()).map_err(|e| e.to_string()),
            Err(why.to_owned())
        );
    }
    // References within the schema work, including recursive ones.
    let looped = r##"{"type":"object","properties":{"a":{"$ref":"#"},"n":{"$ref":"#/$defs/n"}},
        "$defs":{"n":{"type":"integer"}},"additionalProperties":false}"##;
    let rules = Arguments::new(looped).expect("valid");
    assert_eq!(rules.check(Some(r#"{"a":{"a":{"n":1}}}"#)), Ok(()));
    assert_eq!(
        rules.check(Some(r#"{"a":{"a":{"n":"x"}}}"#)),
        Err("arguments/a/a/n: \"x\" is not of type \"integer\"".into())
    );
    assert_eq!(rules.declared(), ["a", "n"]);
}

/// A pattern with exponential time in a backtracking matcher.
#[test]
fn hostile_text_does_not_stall_a_pattern() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}"#;
    let rules = Arguments::new(schema).expect("valid");
    let text = format!(r#"{{"a":"{}b"}}"#, "a".repeat(100_000));
    let began = std::time::Instant::now();
    assert!(rules.check(Some(&text)).is_err());
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn schema_is_kept_verbatim() {
    assert_eq!(rules().schema().get(), SCHEMA);
    assert_eq!(rules(), rules());
    assert_ne!(rules(), Arguments::new(r#"{"type":"object"}"#).expect("valid"));
}
