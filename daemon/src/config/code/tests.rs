//! Commands with the finding expected for each.

use super::scan::{ANY, Finding, KNOWN, Scan, TAME};
use super::*;

/// Finding in a command of words; `{v}` can be any text, `{t}` no option, `{n}` a number.
fn find(words: &[&str], stdin: Option<&str>) -> Option<Finding> {
    scan(words, stdin, false)
}

fn scan(words: &[&str], stdin: Option<&str>, is_wary: bool) -> Option<Finding> {
    let marked = |text: &&str| {
        text.replace("{v}", &ANY.to_string())
            .replace("{t}", &TAME.to_string())
            .replace("{n}", KNOWN)
    };
    let words = words.iter().map(marked).collect();
    Scan::new(words, stdin.map(|text| marked(&text)), is_wary).find()
}

/// Finding in a line split at spaces, with option checks enabled.
fn line(line: &str) -> Option<Finding> {
    scan(&line.split(' ').collect::<Vec<_>>(), None, true)
}

/// Whether a line is rejected; `~` stands for a space within a word.
fn is_rejected(text: &str) -> bool {
    let words: Vec<String> = text.split(' ').map(|word| word.replace('~', " ")).collect();
    find(&words.iter().map(String::as_str).collect::<Vec<_>>(), None).is_some()
}

/// SEC-04: every spelling of an option that takes code.
#[test]
fn input_in_code_is_rejected_in_every_spelling() {
    for text in [
        "sh -c {v}",
        "sh -c echo~{v}",
        "sh -c{v}",
        "sh -{v}",
        "python3 -O{v} x.py",
        "env --{v} ls",
        "sh -ec echo~{v}",
        "sh -e -c echo~{v}",
        "sh -c -e echo~{v}",
        "sh -c -- echo~{v}",
        "sh +e -c echo~{v}",
        "/bin/bash -o pipefail -c echo~{v}",
        "bash -euo pipefail -c echo~{v}",
        "bash --rcfile x -c {v}",
        "bash --norc -lc echo~{t}",
        "zsh -fc {t}",
        "dash -c {t}",
        "fish -c {v}",
        "fish --command={v}",
        "fish -C {v}",
        "nu -c {v}",
        "pwsh -Command {v}",
        "pwsh -NoProfile -Command ls~{v}",
        "pwsh -c ls {v}",
        "python3 -c {v}",
        "python3 -c{v}",
        "python3.12 -Ic print({v})",
        "python3 -W ignore -c print({v})",
        "pypy3 -c x={t}",
        "perl -e {v}",
        "perl -e{v}",
        "perl -ne print~{v}",
        "perl -0777 -pe s/{v}//",
        "perl -0777pe s/{v}//",
        "perl -lane {t}",
        "perl -E say~{v}",
        "perl -M{v} -e 1",
        "ruby -e {v}",
        "ruby -rjson -ne puts~{v}",
        "ruby -r{v} x.rb",
        "node -e {v}",
        "node -p {v}",
        "node -pe 1+{v}",
        "node --eval={v}",
        "node --eval {v}",
        "node --print=1+{v}",
        "node -r {v} x.js",
        "bun -e {v}",
        "deno eval {v}",
        "deno eval --ext=ts 1+{v}",
        "php -r {v}",
        "php -r{v}",
        "php -d {v} x.php",
        "php -B {v}",
        "php8.2 --run echo~{v};",
        "lua -e {v}",
        "lua5.4 -e print({v})",
        "Rscript -e {v}",
        "julia -E 1+{v}",
        "elixir -e {v}",
        "erl -noshell -eval {v}",
        "emacs --batch --eval {v}",
        "emacs --batch --eval={v}",
        "guile -c {v}",
        "osascript -e {v}",
        "gdb -batch -ex {v}",
        "gdb --eval-command={v}",
        "vim -c {v} file",
        "awk {v}",
        "awk {v} file",
        "awk /{v}/ file",
        "gawk -F, /{t}/{print} file",
        "gawk -e {v}",
        "gawk --source={v}",
        "mawk -- {v}",
        "sed s/a/{v}/ file",
        "sed -n -e s/a/{v}/ file",
        "sed -ne s/a/{v}/ file",
        "sed --expr=s/a/{v}/ file",
        "su -c {v}",
        "su ann -c {v}",
        "su - ann -c echo~{v}",
        "su --comm={v} ann",
        "su -l ann --command echo~{v}",
        "su ann -- -c echo~{v}",
        "runuser ann -c echo~{v}",
        "runuser -u ann -- node -e f({v})",
        "sg games -c echo~{v}",
        "script -c {v} file",
        "script -qc echo~{v} file",
        "script -q --command=echo~{v} file",
        "script --comm echo~{v} file",
        "script file -c echo~{v}",
        "watch {v}",
        "watch -n 1 ls {v}",
        "watch -n1 ls~{v}",
        "ssh host {v}",
        "ssh -p 22 host ls {v}",
        "ssh -o ProxyCommand={v} host",
        "flock lock -c {v}",
        "parallel echo~{v}",
        "tar -xf a --to-command={v}",
        "tar -xf a --checkpoint-action=exec={v}",
        "rsync -e {v} a b",
        "make --eval={v}",
        "make --ev {v}",
        "eval {v}",
        "vim +{v} file",
        "vim file +call~system({v})",
        "less +{v} file",
        "git -c {v} log",
        "git -c core.pager={v} log",
        "git -c alias.x=!{v} x",
        "git -c core.{v}=x log",
        "git -C /srv -c core.sshCommand={v} fetch",
        "git --config-env={v} log",
        "git --config-env core.editor={v} commit",
        "git --exec-path={v} log",
        "git grep -O{v} word",
        "git grep --open-files-in-pager={v} word",
        "git rebase -x {v} main",
        "git rebase --exec={v} main",
        "git difftool -x {v}",
        "git clone -u {v} x",
        "git clone --upload-pack={v} x",
        "git clone --template={v} x",
        "git submodule foreach {v}",
        "git bisect run {v}",
        "find . -exec {v} ;",
        "find . -name x -execdir sh -c x{v} ;",
        "fd x -x {v}",
        "rg --pre {v} x",
        "sort --compress-program={v} x",
        "split --filter={v} x",
        "tar -F {v} -cf a b",
        "wget -e {v} url",
        "scp -o ProxyCommand={v} a b",
        "sftp -S {v} host",
        "ssh -I {v} host",
        "man -P {v} ls",
        "ncat --sh-exec {v} host",
        "apt-get -o {v} update",
        "cargo --config {v} build",
        "gcc -wrapper {v} x.c",
        "env LD_PRELOAD={v} ls",
        "env -i PATH={v} ls",
        "env A=b BASH_ENV=/x/{t} bash x.sh",
        "sudo LD_PRELOAD={v} ls",
        "sudo -u ann GIT_SSH_COMMAND={v} git fetch",
        "sudo env PYTHONPATH={v} ls",
        "nice env LD_AUDIT={v} ls",
        "env GIT_CONFIG_VALUE_0={v} git log",
        "systemd-run --setenv=LD_PRELOAD={v} ls",
        "systemd-run -E LD_PRELOAD={v} ls",
    ] {
        assert!(is_rejected(text), "{text}");
    }
}

/// Wrapper programs before the interpreter do not hide the code.
#[test]
fn input_in_code_is_rejected_behind_wrappers() {
    for wrapper in [
        "env",
        "env -i A=b",
        "env -u A -C /tmp --",
        "/usr/bin/env LANG=C",
        "nice -n 5",
        "nice --adjustment=5",
        "ionice -c 3",
        "nohup",
        "setsid -w",
        "timeout 5",
        "timeout -k 1 --signal=TERM {n}",
        "stdbuf -oL",
        "sudo -u ann",
        "sudo -n -- ",
        "doas -u ann",
        "chroot /srv",
        "unshare -r",
        "nsenter -t 1 -m",
        "setpriv --reuid 7 --clear-groups",
        "systemd-run --pipe --wait",
        "flock lock",
        "xargs -n 1",
        "xargs -I % -P 4",
        "busybox",
        "strace -f -o x",
        "taskset 1",
        "time -p",
        "timeout 5 nice -n 5 env A=b",
        "docker exec box",
        "docker run --rm -i image",
        "kubectl exec pod --",
        "some-unknown-wrapper --option value",
        "find . -exec",
    ] {
        let wrapper = wrapper.trim_end();
        for code in ["sh -c echo~{v}", "bash -ec {t}", "python3 -c x={v}", "perl -ne x{v}"] {
            assert!(is_rejected(&format!("{wrapper} {code}")), "{wrapper} {code}");
        }
        for fine in ["sh -c echo~$1 sh {v}", "echo x{v}", "python3 x.py {v}"] {
            assert!(!is_rejected(&format!("{wrapper} {fine}")), "{wrapper} {fine}");
        }
    }
    for text in [
        "env -S {v}",
        "env -S{v}",
        "env --split-string={v}",
        "env --split=sh~-c {v}",
        "env -S sh~-c echo~{v}",
        "env -iS sh~-c~{v}",
        "env {v}",
        "env A=b {v}",
        "env A=b {t}",
        "sudo {v}",
        "nice /opt/{t}",
        "timeout 5 {t}",
        "xargs {t}",
    ] {
        assert!(is_rejected(text), "{text}");
    }
}

/// An input that can be an option of an interpreter can inject code.
#[test]
fn input_that_can_be_an_option_of_an_interpreter_is_warned_about() {
    for text in [
        "sh {v}",
        "sh {v} {v}",
        "sh -{v}",
        "python3 {v}",
        "python3 -O{v} x.py",
        "python3 -u {v}.py",
        "node {v}",
        "perl -e print~1 {v}",
        "node -e f() {v}",
        "php -r f(); {v}",
        "sed -n p {v}",
        "ssh {v} ls",
        "su {v}",
        "env --{v} ls",
    ] {
        assert!(matches!(line(&text.replace('~', "")), Some(Finding::Option(..))), "{text}");
    }
    for text in [
        "sh -- {v}",
        "sh {t}",
        "sh ./{v}",
        "sh x.sh {v}",
        "python3 -m {v}",
        "make -j{v}",
        "sh -eu x.sh {v}",
        "python3 {t}",
        "python3 -- {v}",
        "python3 -u x.py {v} --flag={v}",
        "python3 -m http.server {v}",
        "python3 -c f() {v}",
        "perl -e f() -- {v}",
        "perl -pi -e f() -- {v}",
        "node -e f() -- {v}",
        "node x.js {v}",
        "deno run -A x.ts {v}",
        "php x.php {v}",
        "php -d memory_limit=1G x.php {v}",
        "pwsh -NoProfile -File x.ps1 {v}",
        "sed -n -- p {v}",
        "sed -n {n}p -- {v}",
        "sed -n -e p -- {v}",
        "awk {print} {v}",
        "awk -v x={v} {print} file",
        "awk -F {v} {print}",
        "env A={v} ls {v}",
        "timeout {n} ls {v}",
        "nice -n {n} ls -- {v}",
        "xargs -n {n} ls",
        "sudo -u ann ls {v}",
        "ssh {t} ls",
        "git log {v}",
        "git -c user.name={v} commit",
        "git -c core.pager=cat log {v}",
        "git --no-pager log --grep={v}",
        "git commit -c {v}",
        "git grep -O {v}",
        "git push -u origin {v}",
        "git clean -x {v}",
        "git submodule update {v}",
        "git rebase -x make {v}",
        "vim +{n} file",
        "find {v} -exec grep {v} {} ;",
        "find . -exec ls {} ; -name {v}",
        "sort -o {v} x",
        "cargo test {v}",
        "scp {v} host:x",
        "systemd-run --setenv=LANG={v} ls",
        "sudo LANG={v} ls",
        "make {v}",
        "make -C {v} all",
        "cargo test -- {v}",
        "tar -xf {v}",
        "grep -e {v} file",
        "grep -c {v} file",
        "jq -e {v} file",
        "echo sh {v}",
        "find {v} -name {v}",
        "printf %s {v}",
    ] {
        assert!(!is_rejected(text), "{text}");
        assert_eq!(line(text), None, "{text}");
    }
}

#[test]
fn input_in_code_on_standard_input_is_rejected() {
    for words in [
        &["sh"] as &[&str],
        &["sh", "-s"],
        &["sh", "-s", "--", "x"],
        &["sh", "-"],
        &["bash", "-eu"],
        &["bash", "/dev/stdin"],
        &["python3"],
        &["python3", "-", "x"],
        &["python3", "-u"],
        &["perl", "-w"],
        &["perl", "-MJSON"],
        &["node"],
        &["php"],
        &["php", "-d", "memory_limit=1G"],
        &["env", "A=b", "sh"],
        &["sudo", "-u", "ann", "sh"],
        &["timeout", "5", "python3", "-"],
        &["su", "ann"],
        &["ssh", "host"],
        &["at", "now"],
        &["ed", "file"],
        &["xargs", "-I", "%", "sh", "-c", "echo %"],
        &["xargs", "env"],
    ] {
        assert!(find(words, Some("echo {v}")).is_some(), "{words:?}");
        assert_eq!(find(words, Some("echo {n}")), None, "{words:?}");
        assert_eq!(find(words, None), None, "{words:?}");
    }
    assert!(scan(&["xargs", "sh"], Some("{v}"), true).is_some());
    for words in [
        &["sh", "-c", "cat"] as &[&str],
        &["sh", "x.sh"],
        &["python3", "-c", "f()"],
        &["python3", "x.py", "-"],
        &["python3", "-m", "json.tool"],
        &["perl", "-ne", "print"],
        &["node", "-e", "f()"],
        &["awk", "{print}"],
        &["sed", "s/a/b/"],
        &["jq", "."],
        &["bc"],
        &["cat"],
        &["env", "cat"],
        &["xargs", "ls", "--"],
        &["xargs", "sh", "-c", "echo $1", "sh"],
        &["ssh", "host", "cat"],
        &["parallel", "echo"],
    ] {
        assert_eq!(find(words, Some("echo {v}")), None, "{words:?}");
    }
}

/// An input is classified by the values its schema accepts.
#[test]
fn inputs_are_classified_by_their_schema() {
    let rules = Arguments::new(
        r##"{"type":"object","required":["any"],"properties":{
            "any":{"type":"string"},
            "listed":{"enum":["all","check"]},
            "number":{"type":"integer"},
            "flag":{"type":"boolean"},
            "path":{"type":"string","pattern":"^[a-z]+$"},
            "loose":{"type":"string","pattern":"[a-z]"},
            "list":{"type":"array"},
            "shared":{"$ref":"#/$defs/s"},
            "free":{}
        },"$defs":{"s":{"enum":["x"]}}}"##,
    )
    .expect("valid");
    for (text, want) in [
        ("{any}", "\u{e000}"),
        ("-x{any}", "-x\u{e000}"),
        ("{listed}", "0"),
        ("{number}{flag}", "00"),
        ("{path}", "\u{e001}"),
        ("{loose}", "\u{e000}"),
        ("{shared}", "0"),
        ("{free}", "\u{e000}"),
        ("{unknown}", "\u{e000}"),
        ("{{any}}", "{any}"),
    ] {
        let template = Template::parse(text).expect(text);
        assert_eq!(mark(&template, Some(&rules)), want, "{text}");
    }
}

/// Long and deeply nested commands terminate the search.
#[test]
fn hostile_command_terminates_the_search() {
    let deep = vec!["env"; 10_000];
    assert_eq!(find(&deep, None), None);
    let code = [&deep[..], &["sh", "-c", "x {v}"]].concat();
    assert!(find(&code, None).is_some());
    let mut split = ["env", "-S"].repeat(2_000);
    split.push("{v}");
    let _ = find(&split, Some("{v}"));
    for word in ["-", "--", "+", "=", "--=", "-=", "sh", "-é", "é", ""] {
        for program in ["sh", "env", "xargs", "python3", "awk", "deno", "pwsh"] {
            let _ = find(&[program, word, word, "{v}"], Some("{v}"));
        }
    }
}
