//! Mode, model and options of a session in a fresh agent (SUP-02).

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use crate::supervisor::effect::SupervisionInput;
use crate::supervisor::tests::kit::{World, prompt, terms};

const PLAN: &str = r#"{"sessionId":"s","modeId":"plan","_meta":{"a":1.50}}"#;
const MODEL: &str = r#"{"sessionId":"s","modelId":"big"}"#;

/// `configOptions` of two options.
fn options(depth: &str, fast: bool) -> String {
    format!(
        r#"[{{"id":"depth","name":"D","type":"select","currentValue":"{depth}","options":[]}},{{"id":"fast","name":"F","type":"boolean","currentValue":{fast}}}]"#
    )
}

fn update(of: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{of}}}}}"#
    )
}

fn mode_update(mode: &str) -> String {
    update(&format!(r#"{{"sessionUpdate":"current_mode_update","currentModeId":"{mode}"}}"#))
}

fn options_update(list: &str) -> String {
    update(&format!(r#"{{"sessionUpdate":"config_option_update","configOptions":{list}}}"#))
}

fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn refusal(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"not now"}}}}"#)
}

/// A session whose `session/new` was answered with these members.
fn world(opened: &str) -> World {
    let mut world = World::new(terms());
    let hello =
        r#"{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}"#;
    world.client(&request("0", "initialize", "{}"));
    world.agent(&result("0", hello));
    world.client(&request("1", "session/new", r#"{"cwd":"/w"}"#));
    world.agent(&result("1", &format!(r#"{{"sessionId":"s"{opened}}}"#)));
    world
}

const MODES: &str = r#","modes":{"currentModeId":"default","availableModes":[]}"#;

/// The client's request, and the agent's answer.
fn choose(world: &mut World, method: &str, params: &str, answer: &str) {
    let asked = request("7", method, params);
    assert_eq!(world.client(&asked), [format!("agent {asked}")]);
    let answer = answer.replace("ID", "7");
    assert_eq!(world.agent(&answer), [format!("client {answer}")]);
}

/// The agent dies, and the next prompt has its session reopened in a fresh one, which answers this.
fn reopen(world: &mut World, resumed: &str) -> Vec<String> {
    world.ended();
    assert_eq!(world.prompt(2, "s"), ["start"]);
    let hello = world.input(SupervisionInput::Started);
    let declared =
        r#"{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}"#;
    let resume = world.agent(&result(&id_of(&hello), declared));
    assert!(resume.len() == 1 && resume[0].contains("session/resume"), "{resume:?}");
    world.agent(&result(&id_of(&resume), resumed))
}

/// Id of the request of the supervisor.
fn id_of(effects: &[String]) -> String {
    let request = effects.last().expect("a request");
    let at = request.find("\"ceased-").expect("a request of the supervisor");
    request[at..].split_inclusive('"').take(2).collect()
}

fn asks(effects: &[String], method: &str, params: &str) -> bool {
    effects == [format!("agent {}", request(&id_of(effects), method, params))]
}

fn sent() -> String {
    format!("agent {}", prompt(2, "s"))
}

/// SUP-02: the prompt that waits for a fresh agent is sent behind the mode, the model and the options
/// that the client chose, as the client wrote them and in its order.
#[test]
fn fresh_agent_gets_the_choices_of_the_client() {
    let mut world = world(MODES);
    let fast = r#"{"sessionId":"s","configId":"fast","type":"boolean","value":true}"#;
    choose(
        &mut world,
        "session/set_mode",
        r#"{"sessionId":"s","modeId":"code"}"#,
        &result("ID", "{}"),
    );
    choose(&mut world, "session/set_model", MODEL, &result("ID", "{}"));
    let told = format!(r#"{{"configOptions":{}}}"#, options("low", true));
    choose(&mut world, "session/set_config_option", fast, &result("ID", &told));
    choose(&mut world, "session/set_mode", PLAN, &result("ID", "{}"));
    // A refused choice changes nothing.
    choose(&mut world, "session/set_model", r#"{"sessionId":"s","modelId":"x"}"#, &refusal("ID"));
    for _ in 0..2 {
        let model = reopen(&mut world, "{}");
        assert!(asks(&model, "session/set_model", MODEL), "{model:?}");
        let option = world.agent(&result(&id_of(&model), "{}"));
        assert!(asks(&option, "session/set_config_option", fast), "{option:?}");
        let mode = world.agent(&result(&id_of(&option), &told));
        assert!(asks(&mode, "session/set_mode", PLAN), "{mode:?}");
        // News of the agent about a choice that does not last is none for the client.
        assert_eq!(world.agent(&mode_update("default")), [""; 0]);
        assert_eq!(world.agent(&mode_update("plan")), [""; 0]);
        let chunk = update(r#"{"sessionUpdate":"available_commands_update"}"#);
        assert_eq!(world.agent(&chunk), [format!("client {chunk}")]);
        assert_eq!(world.agent(&result(&id_of(&mode), "{}")), [sent()]);
        world.agent(&result("2", r#"{"stopReason":"end_turn"}"#));
    }
}

/// SUP-02: a choice of the agent itself, which the client shows, holds in a fresh one as well.
#[test]
fn fresh_agent_gets_the_choices_of_its_predecessor() {
    let opened = format!(r#"{MODES},"configOptions":{}"#, options("low", false));
    let mut world = world(&opened);
    let told = [mode_update("plan"), options_update(&options("high", true))];
    for update in told {
        assert_eq!(world.agent(&update), [format!("client {update}")]);
    }
    let resumed = format!(r#"{{"configOptions":{}}}"#, options("low", false));
    let mode = reopen(&mut world, &resumed);
    assert!(asks(&mode, "session/set_mode", r#"{"sessionId":"s","modeId":"plan"}"#), "{mode:?}");
    let depth = world.agent(&result(&id_of(&mode), "{}"));
    let params = r#"{"sessionId":"s","configId":"depth","value":"high"}"#;
    assert!(asks(&depth, "session/set_config_option", params), "{depth:?}");
    let told = |depth: &str, fast| format!(r#"{{"configOptions":{}}}"#, options(depth, fast));
    let fast = world.agent(&result(&id_of(&depth), &told("high", false)));
    let params = r#"{"sessionId":"s","configId":"fast","type":"boolean","value":true}"#;
    assert!(asks(&fast, "session/set_config_option", params), "{fast:?}");
    assert_eq!(world.agent(&result(&id_of(&fast), &told("high", true))), [sent()]);
}

/// SUP-02: a choice that a fresh agent refuses is taken back at the client before the turn.
#[test]
fn refused_choice_is_told_before_the_turn() {
    let cases = [
        // The mode that the agent tells, or the one that it began in.
        (r#"{"modes":{"currentModeId":"code","availableModes":[]}}"#, "code"),
        ("{}", "default"),
    ];
    for (resumed, holds) in cases {
        let mut world = world(MODES);
        choose(&mut world, "session/set_mode", PLAN, &result("ID", "{}"));
        let mode = reopen(&mut world, resumed);
        let told = world.agent(&refusal(&id_of(&mode)));
        assert_eq!(told, [format!("client {}", mode_update(holds)), sent()]);
        world.agent(&result("2", r#"{"stopReason":"end_turn"}"#));
        // The next agent is asked for the mode that the client shows now.
        let mode = reopen(&mut world, "{}");
        let params = format!(r#"{{"sessionId":"s","modeId":"{holds}"}}"#);
        assert!(asks(&mode, "session/set_mode", &params), "{mode:?}");
    }
    let mut world = world(&format!(r#","configOptions":{}"#, options("low", false)));
    let params = r#"{"sessionId":"s","configId":"depth","value":"high"}"#;
    let told = format!(r#"{{"configOptions":{}}}"#, options("high", false));
    choose(&mut world, "session/set_config_option", params, &result("ID", &told));
    let list = options("low", false);
    let depth = reopen(&mut world, &format!(r#"{{"configOptions":{list}}}"#));
    let told = world.agent(&refusal(&id_of(&depth)));
    assert_eq!(told, [format!("client {}", options_update(&list)), sent()]);
}

/// SUP-02: a refused choice that no update can tell is told by the answer to the prompt, once.
#[test]
fn refused_choice_without_an_update_is_an_error() {
    for (method, params, name) in [
        ("session/set_model", MODEL, r#"model "big""#),
        ("session/set_mode", PLAN, r#"mode "plan""#),
    ] {
        let mut world = world("");
        choose(&mut world, method, params, &result("ID", "{}"));
        let asked = reopen(&mut world, "{}");
        let told = world.agent(&refusal(&id_of(&asked)));
        let [told] = told.as_slice() else { panic!("{told:?}") };
        assert!(told.starts_with(r#"client {"jsonrpc":"2.0","id":2,"error""#), "{told}");
        let quoted = name.replace('"', "\\\"");
        assert!(told.contains(&format!("it refused {quoted}: not now")), "{told}");
        assert_eq!(world.prompt(3, "s"), [format!("agent {}", prompt(3, "s"))]);
    }
}

/// SUP-02: a fresh agent that restores a choice differently is asked for it, or is believed.
#[test]
fn choice_that_was_restored_differently_is_told() {
    let mut world = world(MODES);
    let resumed = r#"{"modes":{"currentModeId":"bypass","availableModes":[]}}"#;
    let mode = reopen(&mut world, resumed);
    let params = r#"{"sessionId":"s","modeId":"default"}"#;
    assert!(asks(&mode, "session/set_mode", params), "{mode:?}");
    let told = world.agent(&refusal(&id_of(&mode)));
    assert_eq!(told, [format!("client {}", mode_update("bypass")), sent()]);
}

/// SUP-02: a choice in an agent that ends before it accepts it goes to the one after it.
#[test]
fn agent_that_ends_amid_its_choices_is_followed_by_another() {
    let mut world = world(MODES);
    choose(&mut world, "session/set_mode", PLAN, &result("ID", "{}"));
    let mode = reopen(&mut world, "{}");
    assert!(asks(&mode, "session/set_mode", PLAN), "{mode:?}");
    let told = world.ended();
    assert!(told.len() == 1 && told[0].contains("exit code 3"), "{told:?}");
    let mode = reopen(&mut world, "{}");
    assert!(asks(&mode, "session/set_mode", PLAN), "{mode:?}");
    assert_eq!(world.agent(&result(&id_of(&mode), "{}")), [sent()]);
}

/// A session that the client loads itself has the choices that its agent tells meanwhile.
#[test]
fn loaded_session_has_the_choices_that_the_agent_tells() {
    let mut world = world(MODES);
    choose(&mut world, "session/set_mode", PLAN, &result("ID", "{}"));
    world.client(&request("7", "session/load", r#"{"sessionId":"s","cwd":"/w"}"#));
    world.agent(&mode_update("code"));
    world.agent(&result("7", "{}"));
    let mode = reopen(&mut world, "{}");
    assert!(asks(&mode, "session/set_mode", r#"{"sessionId":"s","modeId":"code"}"#), "{mode:?}");
}

/// Choices beyond the bound are not kept, and then the session is not reopened without them.
#[test]
fn session_with_too_many_choices_is_lost_with_its_agent() {
    let mut world = world("");
    let long = "x".repeat(70_000);
    let params = format!(r#"{{"sessionId":"s","modeId":"{long}"}}"#);
    choose(&mut world, "session/set_mode", &params, &result("ID", "{}"));
    world.ended();
    world.prompt(2, "s");
    let hello = world.input(SupervisionInput::Started);
    let declared =
        r#"{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}"#;
    let told = world.agent(&result(&id_of(&hello), declared));
    assert!(told.len() == 1 && told[0].contains("is lost"), "{told:?}");
    assert!(told[0].contains("65536 are kept"), "{}", told[0].to_string());
}

/// Version 2 names the types of values.
#[test]
fn options_of_version_2_have_types() {
    let mut world = World::new(terms());
    let hello = r#"{"protocolVersion":2,"capabilities":{"session":{}}}"#;
    let option = |value: &str| {
        format!(
            r#"[{{"configId":"mode","name":"M","type":"select","currentValue":"{value}","options":[]}}]"#
        )
    };
    world.client(&request("0", "initialize", r#"{"protocolVersion":2}"#));
    world.agent(&result("0", hello));
    world.client(&request("1", "session/new", r#"{"cwd":"/w"}"#));
    let opened = format!(r#"{{"sessionId":"s","configOptions":{}}}"#, option("ask"));
    world.agent(&result("1", &opened));
    world.agent(&options_update(&option("plan")));
    world.ended();
    world.prompt(2, "s");
    let greeting = world.input(SupervisionInput::Started);
    let resume = world.agent(&result(&id_of(&greeting), hello));
    let asked = world.agent(&result(&id_of(&resume), "{}"));
    let params = r#"{"sessionId":"s","configId":"mode","type":"id","value":"plan"}"#;
    assert!(asks(&asked, "session/set_config_option", params), "{asked:?}");
}
