//! Programs that run code or other programs, and the options that take these.

/// Meaning of the operands (non-option arguments) of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    /// A script and its arguments; code after an option `-c` without a value.
    Shell,
    /// A script and its arguments.
    Script,
    /// Code unless an option supplied some, then files.
    Code,
    /// This many of any kind, then code.
    CodeAfter(usize),
    /// A subcommand, then code if that is this one, or a script.
    Subcommand(&'static str),
    /// A subcommand, which is a program of its own, as `git-NAME`.
    Family,
    /// A script, or further code if an option supplied some.
    PowerShell,
    /// This many of any kind, then a command.
    Command(usize),
    /// A command whose last arguments come from standard input.
    Xargs,
    /// Any kind; options may follow, even after `--`.
    Any,
}

/// A kind of program. Options are letters without the dash, or whole words with it.
#[derive(Debug)]
pub(super) struct Program {
    /// Names of the program, without versions.
    pub(super) names: &'static str,
    /// Options whose value is code.
    pub(super) code: &'static str,
    /// Options whose value is loaded.
    pub(super) loads: &'static str,
    /// Options after which all arguments belong to the code.
    pub(super) last: &'static str,
    /// Other options with a value, joined or in the next argument.
    pub(super) value: &'static str,
    /// Options whose value can only be joined.
    pub(super) joined: &'static str,
    /// As `code` and `loads`, whole words.
    pub(super) code_words: &'static str,
    /// As `value`, whole words.
    pub(super) value_words: &'static str,
    /// Options whose value can only be joined, and is code.
    pub(super) code_joined: &'static str,
    /// Words after which a command follows.
    pub(super) command_words: &'static str,
    /// Options before the subcommand whose value is `KEY=VALUE`, where few keys are no code.
    pub(super) settings: &'static str,
    /// Whether code follows a `+`.
    pub(super) plus: bool,
    pub(super) operands: Operands,
    /// Whether options are recognized after the first operand.
    pub(super) permutes: bool,
    /// Whether it runs its standard input if given nothing else to run.
    pub(super) reads_code: bool,
}

const NONE: Program = Program {
    names: "",
    code: "",
    loads: "",
    last: "",
    value: "",
    joined: "",
    code_words: "",
    value_words: "",
    code_joined: "",
    command_words: "",
    settings: "",
    plus: false,
    operands: Operands::Script,
    permutes: false,
    reads_code: false,
};
/// An interpreter of scripts.
const SCRIPT: Program = Program { reads_code: true, ..NONE };
/// A program that runs another one.
const WRAPPER: Program = Program { operands: Operands::Command(0), ..NONE };

/// A subcommand of git; the options are those of any.
pub(super) const GIT_COMMAND: Program = Program {
    value: "cC",
    code_words: "--upload-pack --receive-pack --exec --extcmd --open-files-in-pager --tree-filter \
                 --msg-filter --index-filter --env-filter --commit-filter --tag-name-filter \
                 --parent-filter --template",
    operands: Operands::Any,
    ..NONE
};

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        names: "sh bash dash ash ksh ksh93 mksh lksh oksh zsh yash posh rbash rc es csh tcsh osh",
        value_words: "--rcfile --init-file",
        operands: Operands::Shell,
        ..SCRIPT
    },
    Program {
        names: "fish",
        code: "cC",
        value: "dDf",
        code_words: "--command --init-command",
        value_words: "--debug --debug-output --features --profile --profile-startup",
        ..SCRIPT
    },
    Program {
        names: "nu elvish xonsh",
        code: "ce",
        code_words: "--commands --execute",
        value_words: "--config --env-config --rc",
        ..SCRIPT
    },
    Program {
        names: "pwsh powershell",
        code_words: "-Command -command -c -EncodedCommand -enc -ec -e",
        value_words: "-ExecutionPolicy -ep -ex -OutputFormat -o -WorkingDirectory -wd -Version",
        operands: Operands::PowerShell,
        ..SCRIPT
    },
    Program {
        names: "python pythonw pypy ipython micropython jython",
        code: "c",
        last: "cm",
        value: "WXm",
        value_words: "--check-hash-based-pycs",
        ..SCRIPT
    },
    Program { names: "perl", code: "eE", loads: "mMd", joined: "0iFlDxIVC", ..SCRIPT },
    Program {
        names: "ruby jruby truffleruby irb",
        code: "e",
        loads: "r",
        value: "ICE",
        joined: "0iFKTWx",
        code_words: "--require",
        ..SCRIPT
    },
    Program {
        names: "node nodejs bun tsx ts-node",
        code: "ep",
        loads: "r",
        value: "C",
        code_words: "--eval --print --require --import --loader --experimental-loader",
        value_words: "--conditions --input-type --env-file",
        ..SCRIPT
    },
    Program {
        names: "deno",
        code: "p",
        code_words: "--eval --print",
        operands: Operands::Subcommand("eval"),
        ..NONE
    },
    Program {
        names: "php php-cgi",
        code: "rBRE",
        loads: "dz",
        value: "cfFSt",
        code_words: "--run --process-begin --process-code --process-end --define --zend-extension",
        value_words: "--php-ini --file --process-file --server --docroot",
        ..SCRIPT
    },
    Program { names: "lua luajit texlua", code: "e", loads: "lj", ..SCRIPT },
    Program {
        names: "Rscript R littler",
        code: "e",
        value: "fgd",
        code_words: "-e --expr",
        value_words: "--file --gui --debugger",
        ..SCRIPT
    },
    Program {
        names: "julia",
        code: "eE",
        loads: "L",
        value: "CHJOgptm",
        code_words: "--eval --print --load",
        ..SCRIPT
    },
    Program {
        names: "elixir iex erl",
        code: "er",
        value: "S",
        code_words: "--eval --rpc-eval --require -eval -run -s -r -e -pr -pa -pz",
        ..SCRIPT
    },
    Program {
        names: "guile racket scheme chez sbcl clisp ecl gosh csi emacs emacs-nox clojure clj bb jshell \
                groovy scala ghc runghc ocaml swift crystal raku osascript expect tclsh wish jimsh \
                gnuplot octave maxima gforth gjs dart coffee janet mongosh mongo",
        code: "ceEfl",
        code_words: "--eval --eval-string --evaluate --execute --expr --command --funcall --load \
                     --require --main -eval -x -ex -e -c",
        ..SCRIPT
    },
    Program {
        names: "gdb",
        code_words: "--eval-command --command --init-command --init-eval-command -ex -iex -x -ix",
        operands: Operands::Any,
        reads_code: true,
        ..NONE
    },
    Program {
        names: "lldb",
        code: "oOsSk",
        code_words: "--one-line --one-line-before-file --source --source-before-file",
        operands: Operands::Any,
        reads_code: true,
        ..NONE
    },
    Program {
        names: "vi vim nvim ex view gvim vimdiff",
        code: "cSsu",
        code_words: "--cmd",
        plus: true,
        operands: Operands::Any,
        reads_code: true,
        ..NONE
    },
    Program {
        names: "ed red at batch crontab dc m4",
        value: "fqtuDIUFo",
        operands: Operands::Any,
        reads_code: true,
        ..NONE
    },
    Program {
        names: "awk gawk mawk nawk original-awk goawk",
        code: "eEl",
        last: "E",
        value: "fFvi",
        code_words: "--source --exec --load",
        value_words: "--file --field-separator --assign --include",
        operands: Operands::Code,
        ..NONE
    },
    Program {
        names: "sed gsed ssed",
        code: "e",
        value: "fl",
        joined: "i",
        code_words: "--expression",
        value_words: "--file --line-length",
        operands: Operands::Code,
        permutes: true,
        ..NONE
    },
    // Programs other than interpreters whose options run code.
    Program {
        names: "make gmake",
        code: "E",
        value: "CfIoW",
        code_words: "--eval",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "tar gtar bsdtar",
        code: "IF",
        code_words: "--to-command --checkpoint-action --use-compress-program --rsh-command \
                     --info-script --new-volume-script",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "rsync",
        code: "e",
        code_words: "--rsh --rsync-path",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "git",
        value: "C",
        code_words: "--exec-path",
        value_words: "--git-dir --work-tree --namespace",
        settings: "-c --config-env",
        operands: Operands::Family,
        ..NONE
    },
    Program { names: "git-clone git-fetch-pack", code: "u", ..GIT_COMMAND },
    Program { names: "git-rebase git-difftool", code: "x", ..GIT_COMMAND },
    Program { names: "git-grep", code_joined: "O", ..GIT_COMMAND },
    Program { names: "git-submodule", operands: Operands::Subcommand("foreach"), ..GIT_COMMAND },
    Program { names: "git-bisect", operands: Operands::Subcommand("run"), ..GIT_COMMAND },
    Program {
        names: "less more",
        value: "kpjbhoOPtT",
        plus: true,
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "man",
        code: "P",
        code_joined: "H",
        code_words: "--pager --html",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "find gfind",
        command_words: "-exec -execdir -ok -okdir",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "fd fdfind",
        command_words: "-x -X --exec --exec-batch",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "rg",
        code_words: "--pre --hostname-bin",
        value_words: "--pre-glob",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "sort gsort",
        code_words: "--compress-program",
        operands: Operands::Any,
        ..NONE
    },
    Program { names: "split gsplit", code_words: "--filter", operands: Operands::Any, ..NONE },
    Program {
        names: "wget",
        code: "e",
        code_words: "--execute --use-askpass",
        operands: Operands::Any,
        ..NONE
    },
    Program { names: "zip", code_words: "-TT --unzip-command", operands: Operands::Any, ..NONE },
    Program {
        names: "nc ncat netcat",
        code: "ec",
        code_words: "--exec --sh-exec --lua-exec",
        operands: Operands::Any,
        ..NONE
    },
    Program { names: "tcpdump", code: "z", operands: Operands::Any, ..NONE },
    Program { names: "apt apt-get aptitude", code: "o", operands: Operands::Any, ..NONE },
    Program { names: "cargo", code_words: "--config", operands: Operands::Any, ..NONE },
    Program {
        names: "gcc g++ cc c++ clang clang++",
        code_words: "-wrapper -fplugin -specs --specs",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "scp sftp",
        code: "SoFD",
        value: "BbciJlPRsX",
        operands: Operands::Any,
        ..NONE
    },
    Program {
        names: "ssh autossh dbclient",
        code: "oFI",
        value: "BbcDEeiJLlmOPpQRSWw",
        operands: Operands::CodeAfter(1),
        reads_code: true,
        ..NONE
    },
    Program {
        names: "watch viddy",
        value: "nq",
        joined: "d",
        value_words: "--interval --equexit",
        operands: Operands::CodeAfter(0),
        ..NONE
    },
    Program {
        names: "parallel sem",
        value: "aIjLNnS",
        operands: Operands::CodeAfter(0),
        reads_code: true,
        ..NONE
    },
    Program {
        names: "su",
        code: "c",
        value: "gGswT",
        code_words: "--command --session-command",
        value_words: "--group --supp-group --shell --whitelist-environment",
        operands: Operands::Any,
        reads_code: true,
        ..NONE
    },
    Program { names: "sg", code: "c", operands: Operands::CodeAfter(1), reads_code: true, ..NONE },
    Program {
        names: "script",
        code: "c",
        value: "BEIOTmot",
        code_words: "--command",
        value_words: "--log-io --log-out --log-in --log-timing --logging-format --output-limit --echo",
        operands: Operands::Any,
        reads_code: true,
        ..NONE
    },
    Program { names: "eval", operands: Operands::CodeAfter(0), ..NONE },
    Program {
        names: "nix nix-shell nix-instantiate nix-build",
        code: "EI",
        code_words: "--run --command --expr --impure-expr -c",
        operands: Operands::Any,
        ..NONE
    },
    // Programs that run another program.
    Program {
        names: "env",
        code: "S",
        value: "uCa",
        code_words: "--split-string",
        value_words: "--unset --chdir --argv0",
        ..WRAPPER
    },
    Program {
        names: "nohup setsid command builtin busybox toybox chronic unbuffer dumb-init tini \
                catatonit caffeinate eatmydata fakeroot firejail proot setarch linux32 linux64",
        ..WRAPPER
    },
    Program { names: "exec", value: "a", ..WRAPPER },
    Program { names: "nice", value: "n", value_words: "--adjustment", ..WRAPPER },
    Program {
        names: "ionice",
        value: "cnpPu",
        value_words: "--class --classdata --pid --pgid --uid",
        ..WRAPPER
    },
    Program {
        names: "chrt",
        value: "TPD",
        value_words: "--sched-runtime --sched-period --sched-deadline",
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program { names: "stdbuf", value: "ioe", value_words: "--input --output --error", ..WRAPPER },
    Program { names: "time", value: "fo", value_words: "--format --output", ..WRAPPER },
    Program {
        names: "timeout",
        value: "ks",
        value_words: "--kill-after --signal",
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program {
        names: "taskset gosu su-exec setuidgid faketime",
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program {
        names: "chroot",
        value_words: "--userspec --groups",
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program {
        names: "flock",
        code: "c",
        value: "wE",
        code_words: "--command",
        value_words: "--timeout --wait --conflict-exit-code",
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program {
        names: "sudo doas",
        value: "ughpCcTrtDRUa",
        value_words: "--user --group --host --prompt --close-from --chdir --chroot --role --type \
                      --command-timeout --other-user",
        reads_code: true,
        ..WRAPPER
    },
    Program {
        names: "runuser",
        code: "c",
        value: "ugGswT",
        code_words: "--command --session-command",
        value_words: "--user --group --supp-group --shell --whitelist-environment",
        operands: Operands::Any,
        reads_code: true,
        ..NONE
    },
    Program {
        names: "setpriv unshare nsenter prlimit systemd-run strace ltrace",
        value: "eopuEIaOPSXtGRwHMCD",
        value_words: "--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits \
                      --pdeathsig --selinux-label --apparmor-profile --target --setuid --setgid --root \
                      --wd --unit --property --description --slice --uid --gid --working-directory \
                      --setenv --machine --map-user --map-group",
        reads_code: true,
        ..WRAPPER
    },
    Program {
        names: "xargs gxargs",
        value: "adEILnPs",
        joined: "eil",
        value_words: "--arg-file --delimiter --max-args --max-chars --max-procs --process-slot-var",
        operands: Operands::Xargs,
        ..WRAPPER
    },
];

/// Settings of git with a value that is no code, and names no program or file that is run.
pub(super) const SETTINGS: &str = "\
    user. author. committer. color. column. advice. log. i18n. status. init.defaultbranch \
    core.quotepath core.abbrev core.autocrlf core.eol core.filemode core.longpaths commit.gpgsign \
    http.extraheader http.timeout push.default pull.rebase pull.ff merge.conflictstyle diff.context \
    diff.algorithm diff.renames fetch.prune protocol.version safe.directory";

/// Whether a variable controls the code that a program runs or loads.
pub(in crate::config) fn controls_code(name: &str) -> bool {
    let begins = |prefix: &&str| name.starts_with(*prefix);
    VARIABLES.split_ascii_whitespace().any(|known| known == name)
        || ["GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "BASH_FUNC_"].iter().any(begins)
}

const VARIABLES: &str = "\
    LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH BASH_ENV ENV SHELLOPTS BASHOPTS PROMPT_COMMAND PS4 ZDOTDIR \
    PYTHONSTARTUP PYTHONPATH PYTHONHOME PYTHONINSPECT PERL5OPT PERL5LIB PERLLIB PERL5DB RUBYOPT \
    RUBYLIB NODE_OPTIONS NODE_PATH LUA_INIT LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR \
    JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF \
    GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_ASKPASS GIT_PROXY_COMMAND GIT_EXEC_PATH \
    GIT_CONFIG_PARAMETERS GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM SSH_ASKPASS SUDO_ASKPASS PAGER \
    MANPAGER SYSTEMD_PAGER EDITOR VISUAL BROWSER LESSOPEN LESSCLOSE MAKEFLAGS GNUMAKEFLAGS \
    RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTFLAGS CC CXX PATH SHELL LESS MORE \
    GIT_TEMPLATE_DIR GIT_CONFIG_COUNT DOTNET_STARTUP_HOOKS RSYNC_RSH TAR_OPTIONS GCONV_PATH";
