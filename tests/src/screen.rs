//! Programs on a terminal of their own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::daemon::{TIME_LIMIT, wait_until};

/// A program on its own terminal.
#[derive(Debug)]
pub struct Screen {
    child: Child,
    ours: OwnedFd,
    /// The other end, to check the mode in which the program leaves the terminal.
    theirs: OwnedFd,
    before: Termios,
    terminal: Arc<Mutex<Parser>>,
}

/// The parser has no text form.
struct Parser(vt100::Parser);

impl std::fmt::Debug for Parser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parser")
    }
}

/// A number of lines or columns.
fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a screen has lines and columns")
}

fn size(ours: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(ours, size).expect("a terminal has a size");
}

impl Screen {
    /// Starts a program on a terminal of this size.
    ///
    /// # Panics
    ///
    /// When the system has no terminal, or the program cannot be started.
    #[must_use]
    pub fn start(program: &Command, (rows, columns): (u16, u16)) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a terminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("ours");
        let theirs = ioctl_tiocgptpeer(&ours, flags).expect("the terminal has another end");
        size(&ours, rows, columns);
        let before = tcgetattr(&theirs).expect("a terminal has a mode");
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        // A session of its own, with the terminal as its controlling one.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program.get_program()).args(program.get_args());
        if let Some(dir) = program.get_current_dir() {
            command.current_dir(dir);
        }
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("the program can be started");
        let parser = vt100::Parser::new(some(rows), some(columns), 0);
        let terminal = Arc::new(Mutex::new(Parser(parser)));
        let mut reader = File::from(ours.try_clone().expect("a descriptor"));
        let shared = Arc::clone(&terminal);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let mut terminal = shared.lock().unwrap_or_else(PoisonError::into_inner);
                terminal.0.process(bytes.get(..count).unwrap_or_default());
            }
        });
        Self { child, ours, theirs, before, terminal }
    }

    /// Looks at the screen.
    pub fn look<T>(&self, see: impl FnOnce(&vt100::Screen) -> T) -> T {
        see(self.terminal.lock().unwrap_or_else(PoisonError::into_inner).0.screen())
    }

    /// The text on the screen.
    #[must_use]
    pub fn text(&self) -> String {
        self.look(vt100::Screen::contents)
    }

    /// Waits until the screen shows the text and is stable.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn wait(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + TIME_LIMIT;
        let mut before = self.text();
        loop {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let text = self.text();
            if text == before && shows(&text) {
                return text;
            }
            assert!(Instant::now() < until, "in vain: {what}\n{text}");
            before = text;
        }
    }

    /// Presses keys.
    ///
    /// # Panics
    ///
    /// When the terminal is gone.
    pub fn press(&self, keys: &str) {
        let mut ours = File::from(self.ours.try_clone().expect("a descriptor"));
        ours.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Resizes the terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        let mut terminal = self.terminal.lock().unwrap_or_else(PoisonError::into_inner);
        terminal.0.screen_mut().set_size(some(rows), some(columns));
        drop(terminal);
        size(&self.ours, rows, columns);
    }

    /// Process id of the program's parent, which passes signals on.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the exit and checks that the terminal's mode is restored.
    ///
    /// # Panics
    ///
    /// When it is not, or the program does not end.
    #[must_use]
    pub fn end(mut self) -> Option<i32> {
        let mut code = None;
        wait_until("it ends", || {
            code = self.child.try_wait().expect("a child").map(|status| status.code());
            code.is_some()
        });
        let after = tcgetattr(&self.theirs).expect("a terminal has a mode");
        assert_eq!(after.local_modes, self.before.local_modes, "raw mode is left");
        assert!(after.local_modes.contains(LocalModes::ECHO));
        wait_until("the other screen is left", || self.look(|screen| !screen.alternate_screen()));
        wait_until("the cursor is shown again", || !self.look(vt100::Screen::hide_cursor));
        code.flatten()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
