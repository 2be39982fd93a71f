//! The command line of `dgem template …`; `commands::template` runs it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{CatalogueFlags, VariableFlags};

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Print what decide would send, as one JSON document: the schema and the state
    ///
    /// Example: dgem template render -t code_review -v 'diff=+ retry(3)' | jq .state
    Render(RenderArgs),
    /// List the templates that -t takes by name
    ///
    /// Example: dgem template list
    List(ListArgs),
    /// Show the variables and the questions of one template
    ///
    /// Example: dgem template show support_triage
    Show(ShowArgs),
    /// Check templates: syntax, metadata, and the questions they render to with their sample values
    ///
    /// Example: dgem template check templates/*.json.tmpl
    Check(CheckArgs),
    /// Write a new template to start from
    ///
    /// Example: dgem template new my_policy --from support_triage
    New(NewArgs),
}

/// One template, with or without the flag.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct TemplateArg {
    /// Template: a file, or a name that `dgem template list` shows
    #[arg(value_name = "TEMPLATE")]
    pub plain: Option<PathBuf>,
    /// The same as a flag
    #[arg(short = 't', long = "template", value_name = "TEMPLATE")]
    pub flagged: Option<PathBuf>,
}

impl TemplateArg {
    /// The one that was given.
    pub fn path(&self) -> &Path {
        self.plain.as_deref().or(self.flagged.as_deref()).unwrap_or(Path::new(""))
    }
}

#[derive(Args, Debug)]
pub struct RenderArgs {
    #[command(flatten)]
    pub template: TemplateArg,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    #[command(flatten)]
    pub variables: VariableFlags,
    /// Fill variables that are not given with the sample values of the template
    #[arg(long)]
    pub sample: bool,
    /// Print the rendered text as it is, even when it is no valid JSON
    #[arg(long)]
    pub raw: bool,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Folder to list instead of the usual one
    #[arg(value_name = "DIR", conflicts_with = "templates")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
}

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub template: TemplateArg,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    /// Print the source instead
    #[arg(long)]
    pub source: bool,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Templates: files, or names that `dgem template list` shows
    #[arg(required_unless_present = "flagged", value_name = "TEMPLATE")]
    pub plain: Vec<PathBuf>,
    /// The same as a flag; repeatable
    #[arg(short = 't', long = "template", value_name = "TEMPLATE")]
    pub flagged: Vec<PathBuf>,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    #[command(flatten)]
    pub variables: VariableFlags,
    /// Also send what they render to to the server, which knows its labels and limits
    #[arg(long)]
    pub server: bool,
}

#[derive(Args, Debug)]
pub struct NewArgs {
    /// Name of the new template: templates/NAME.json.tmpl
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Start from a copy of this template
    #[arg(long, value_name = "TEMPLATE")]
    pub from: Option<PathBuf>,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
}
