//! Text description of a configuration, as printed by `ceased check`.

use super::*;

#[test]
fn listeners_and_tools_are_described() {
    let config = good(
        r#"
        [[tool]]
        name = "build"
        command = ["make", "{what}"]
        cwd = "src"
        env = { A = "{what}" }
        stdin = "y"
        input.what = { type = "string" }
        [[tool]]
        name = "e"
        builtin = "echo"
        "#,
    );
    let text = config.describe();
    for line in [
        "listen                     unix /run/ceased/ceased.sock mode 0600",
        "workers                    64, 1024 more may wait",
        "message_bytes              16MiB",
        "on_ttl                     finish, the result is kept for 5m",
        "tool build                 [\"make\", \"{what}\"]",
        "                           task forbidden, timeout 10m, kill_grace 2s, max_output 1MiB",
        "                           cwd /etc/ceased/src",
        "                           env A=\"{what}\"",
        "                           stdin \"y\"",
        "tool e                     builtin echo",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\nis not in\n{text}");
    }
    assert!(Config::default().describe().contains("none: no tool is configured"));
}

/// Every effective value is described, whether it is a default or written.
#[test]
fn store_settings_are_described() {
    let text = good("").describe();
    for line in [
        "store_reserve              8MiB",
        "store_retry                2s",
        "damaged_store              refuse",
        "resident_result_bytes      16KiB",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\nis not in\n{text}");
    }
    let text = good(
        "[daemon]\nstore_reserve = 0\nstore_retry = \"7s\"\ndamaged_store = \"set_aside\"\n\
         [limits]\nresident_result_bytes = \"3KiB\"\n",
    )
    .describe();
    for line in [
        "store_reserve              0B",
        "store_retry                7s",
        "damaged_store              set_aside",
        "resident_result_bytes      3KiB",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\nis not in\n{text}");
    }
}
