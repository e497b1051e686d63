//! Lookups: they read, and have no effect outside. Their results are recorded with the job.

use super::{ParameterType, Spec, parameter};

pub(super) static COMPANY: Spec = Spec {
    name: "enrich.company",
    about: "Derives the company from the domain of the email address. Its output has found and, if that is true, domain and name: a guess from the \
            domain. Addresses of a mailbox provider such as gmail.com have no company.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("email", ParameterType::Text, false, "The email address; default event.email."),
        parameter(
            "domain",
            ParameterType::Text,
            false,
            "A domain or website to use instead of `email`, if it has a value.",
        ),
        parameter("free_mail", ParameterType::Texts, false, "Further domains of mailbox providers."),
    ],
};

pub(super) static GEOIP: Spec = Spec {
    name: "enrich.geoip",
    about: "Looks up an IP address in a database file in the MaxMind format. Its output has found and, as far as the database has them, continent, \
            country, country_name, region, region_code, city, postal_code, timezone, asn and organization. A changed file is read again.",
    destination: "",
    destination_required: false,
    parameters: &[
        parameter("ip", ParameterType::Text, true, "The address, such as {{ event.ip }}; of a list, the first one."),
        parameter(
            "database",
            ParameterType::Text,
            true,
            "Path of the file, relative to the directory of the configuration. Read at startup, so {{ … }} is not available.",
        ),
        parameter("language", ParameterType::Text, false, "Language of names; default en."),
    ],
};

pub(super) static HTTP: Spec = Spec {
    name: "enrich.http",
    about: "Asks a destination for details. Its output has found and, if that is true, the chosen fields. A status of 404 and a response \
            without any of the fields have found false. Answers are cached in memory. A lookup waits for no destination: if it is paused, at its \
            limit, failing or too slow, the job continues without.",
    destination: "http",
    destination_required: true,
    parameters: &[
        parameter("method", ParameterType::OneOf(&["GET", "POST"]), false, "The method; default GET."),
        parameter(
            "url",
            ParameterType::Url,
            true,
            "Relative to the destination's base_url. Values are percent-encoded.",
        ),
        parameter("headers", ParameterType::Map, false, "Additional request headers."),
        parameter("query", ParameterType::Map, false, "Query parameters; they are percent-encoded."),
        parameter("json", ParameterType::Any, false, "The body as JSON."),
        parameter(
            "fields",
            ParameterType::Map,
            true,
            "Names in the output, each with its path in the response, such as company.size. Everything else is left out.",
        ),
        parameter("timeout", ParameterType::Duration, false, "Deadline of the lookup; default 2s, at most 10s."),
        parameter(
            "cache",
            ParameterType::Duration,
            false,
            "How long an answer is used again; default 24h, 0s for never.",
        ),
        parameter(
            "negative_cache",
            ParameterType::Duration,
            false,
            "The same for an answer without an entry, and for a rejected request; default 10m.",
        ),
    ],
};
