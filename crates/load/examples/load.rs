//! The generator on its own, for measuring a server without building one:
//! `cargo run --release -p reveille-load --example load -- append --url http://127.0.0.1:4437`

use clap::Parser;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    work: reveille_load::Workload,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let report = reveille_load::run(&options.work)?;
    print!("{}", report.render(options.work.target().output));
    Ok(())
}
