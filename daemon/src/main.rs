//! The `ceased` binary.

fn main() {
    ceased::process::guard::init();
}
