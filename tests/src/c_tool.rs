//! Tools in C, for behaviour that a shell cannot show. Compiled on demand by the compiler driver
//! that also links the tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A program whose first thread exits by `exit(2)` while another one works. `$1` is a marker; a
/// second argument makes it ignore SIGTERM. Writes `1` to descriptor 3 when its first thread has
/// exited.
pub const LEADERLESS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *work(void *nothing) {
    char text[512], *end = "";
    do {
        usleep(1000);
        FILE *stat = fopen("/proc/self/stat", "r");
        if (!stat) continue;
        size_t n = fread(text, 1, sizeof text - 1, stat);
        fclose(stat);
        text[n] = 0;
        end = strrchr(text, ')');
    } while (!end || strncmp(end, ") Z", 3));
    dprintf(3, "1\n");
    for (;;) sleep(1000);
    return nothing;
}
int main(int argc, char **argv) {
    (void)argv;
    if (argc > 2) signal(SIGTERM, SIG_IGN);
    pthread_t thread;
    if (pthread_create(&thread, 0, work, 0)) return 2;
    syscall(SYS_exit, 0);
}
"#;

/// A set-uid program that becomes root completely, so that no other user can signal it. `$1` is a
/// marker; the program ends when the file `$2` is removed. Writes `1` to descriptor 3 when it is
/// root.
pub const ROOTED: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc < 3 || setresgid(0, 0, 0) || setresuid(0, 0, 0)) return 3;
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    dprintf(3, "1\n");
    while (!access(argv[2], F_OK)) usleep(10000);
    return 0;
}
"#;

/// A compiled tool, in a directory open to every user.
#[derive(Debug)]
pub struct CTool {
    dir: TempDir,
}

impl CTool {
    /// Compiles a tool and sets its mode. `None` with a printed line if there is no compiler.
    ///
    /// # Panics
    ///
    /// When the tool cannot be written or compiled.
    #[must_use]
    pub fn build(source: &str, mode: u32) -> Option<Self> {
        let dir = TempDir::new().expect("a directory for the tool");
        let open = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(dir.path(), open(0o755)).expect("the directory is ours");
        let tool = Self { dir };
        let text = tool.dir.path().join("tool.c");
        fs::write(&text, source).expect("the source is written");
        let compiled =
            Command::new("cc").arg("-pthread").arg("-o").arg(tool.path()).arg(&text).status();
        let Ok(status) = compiled else {
            eprintln!("SKIPPED: no C compiler here");
            return None;
        };
        assert!(status.success(), "the tool can be compiled");
        fs::set_permissions(tool.path(), open(mode)).expect("the tool is ours");
        Some(tool)
    }

    /// Path of the program.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("tool")
    }

    /// Creates a file beside the program.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, "").expect("the file is written");
        path
    }
}
