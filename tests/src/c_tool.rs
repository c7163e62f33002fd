//! Tools in C, for what no shell can do. They are compiled when a test wants them, by the compiler
//! driver that links the tests as well.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A program whose first thread leaves by `exit(2)` while another works. `$1` is a marker; with a
/// `$2`, SIGTERM is ignored. Says `1` on descriptor 3 when its first thread has left.
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

/// A program that becomes root wholly, where it is set-uid: no other user can signal it. `$1` is a
/// marker; it ends when the file `$2` is gone. Says `1` on descriptor 3 when it is root.
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

/// A compiled tool, in a directory that every user may enter.
#[derive(Debug)]
pub struct CTool {
    dir: TempDir,
}

impl CTool {
    /// Compiles one, with this mode. `None`, said aloud, where there is no compiler.
    ///
    /// # Panics
    ///
    /// When it cannot be written or compiled.
    #[must_use]
    pub fn build(source: &str, mode: u32) -> Option<Self> {
        let dir = TempDir::new().expect("a directory for the tool");
        let open = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(dir.path(), open(0o755)).expect("a directory of our own");
        let tool = Self { dir };
        let text = tool.dir.path().join("tool.c");
        fs::write(&text, source).expect("a file of our own");
        let compiled =
            Command::new("cc").arg("-pthread").arg("-o").arg(tool.path()).arg(&text).status();
        let Ok(status) = compiled else {
            eprintln!("SKIPPED, no C compiler here");
            return None;
        };
        assert!(status.success(), "the tool can be compiled");
        fs::set_permissions(tool.path(), open(mode)).expect("a file of our own");
        Some(tool)
    }

    /// Where the program is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("tool")
    }

    /// A file beside it that is there until it is removed.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, "").expect("a file of our own");
        path
    }
}
