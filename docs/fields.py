"""Meaning of every field of job.toml, federation.toml and server.toml, and of every route. `site_pages` refuses
gaps."""

from __future__ import annotations

MEANINGS: dict[str, dict[str, str]] = {
    "Proposal": {
        "name": "Name of the job, for people. The SHA-256 of the file is its id.",
        "federation": "SHA-256 digest of the revision of `federation.toml` that the job is for.",
        "build": "Build of the servers that run the job. Servers of another build refuse it.",
        "expires": "When the job ends without a result if it is not done before.",
        "erase_after": (
            "How long the servers keep contributions and results after the end of the job: a number and s, m, h or d."
        ),
        "not_before": "Servers do not start the job before this time.",
        "opens": (
            "Everything that is opened to the servers. It follows from the other fields; a file with another list is "
            "refused."
        ),
        "reveals": "Everything that is revealed, by receiver. It follows from the other fields, as `opens` does.",
    },
    "Data": {
        "form": (
            "What owners send: `rows`, `columns`, `wide-rows`, `wide-columns`; for new rows of a kept model `new- "
            "rows`, `new-columns`."
        ),
        "owners": "Names of the members whose tables are used.",
        "columns": "Names of the columns. With column owners: a table `[data.columns]` with a list for every owner.",
        "tables": "If one owner acts for several tables: the number of columns of each.",
        "standardize": "Divide each column by its joint standard deviation first.",
        "missing": "Missing values: `refuse` the table, `drop` the row, or count the `mean` of the column.",
        "align": "How rows of column owners are joined. Column owners only.",
        "rows_at_least": "The servers stop if the owners have fewer rows together.",
        "add_to": "Name of kept sums to which these rows are added. Not in a federation.",
        "scales": "Scale exponents of the columns of the kept model, for new rows.",
        "chunks": "Number of row chunks of the second moments of column owners. Absent: as few as possible.",
        "check_inputs": (
            "The servers check on shares that the numbers of each owner are in range. Required with several owners."
        ),
    },
    "Align": {
        "alignment": (
            "`psi`: private set intersection of ids. `aligned`: rows in the order they have. `namespace`: ids 0 to "
            "`namespace` - 1."
        ),
        "namespace": "Number of ids, for that alignment only.",
        "minimum": "The job stops if the owners have fewer rows in common.",
        "fold_case": "Ignore the case of ids.",
        "row_share_at_most": "The job stops if one row has a larger part of the sum of squares of a column.",
    },
    "JointPCA": {
        "components": "Number of components, a fraction of variance such as 0.95, or absent for all.",
        "solver": "Eigensolver: `auto`, `allpairs`, `topk`, `jacobi` or one of the paper's.",
        "tol": "Residual at which the solver stops, relative to the matrix.",
        "fixed_iterations": "Run exactly this many iterations and open no convergence bits.",
        "max_iterations": "Maximum number of iterations before falling back to cyclic Jacobi.",
    },
    "JointRegression": {
        "target": "Name of the column that the other columns explain.",
        "method": "`ols`: least squares. `ridge`: with a penalty.",
        "alpha": "Penalty of ridge regression, above 0; 0 for least squares.",
        "scaled": "The penalty is for columns divided by their joint deviation.",
    },
    "UseModel": {
        "model": "Id of the job that kept the model.",
        "model_owners": "Owners of the model. They must approve, too.",
        "threshold": "Flag rows with a larger anomaly score, in squared units of the data.",
        "contamination": "Flag this fraction of the rows, those with the largest scores.",
    },
    "Keep": {
        "allow": (
            "Uses of the kept model (`transform`, `flags`, `scores`), each with the members that may receive the "
            "results."
        ),
        "name": "Name on local servers. Absent in a federation.",
        "until": "When the servers erase the model. Required in a federation.",
    },
    "MembershipFile": {
        "name": "Name of the federation.",
        "revision": "Revision of the file. Every change raises it by one, and all four operators sign it again.",
        "server": "The four servers.",
        "member": "Data owners and receivers.",
        "former": "Keys that members once had. They count only for jobs of earlier revisions.",
    },
    "ServerEntry": {
        "number": "Number of the server, 0 to 3. An operator keeps it.",
        "member": "Name of the operator.",
        "key": "Public Ed25519 key of the operator.",
        "api": "Address for members and servers: host:port.",
        "mesh": "Address for the other three servers while a job runs.",
    },
    "Member": {
        "name": "Name of the member.",
        "key": "Public Ed25519 key of the member.",
        "roles": "What the member may be in a job.",
    },
    "Former": {"name": "Name of the member that had the key.", "key": "The former key."},
    "ServerFile": {
        "server": "Number of this server, 0 to 3.",
        "federation": "Path of `federation.toml`, relative to this file.",
        "identity": "Path of the private key.",
        "listen": "Addresses to listen on.",
        "store": "What is stored, and where.",
        "policy": "What this operator computes, for whom.",
        "work": "How jobs run on this machine.",
        "workers": "The operator's own Dask cluster. Absent: none.",
    },
    "Listen": {
        "api": "For members and servers.",
        "mesh": "For the other servers while a job runs.",
        "local": "For this machine only: operator's page, health and metrics.",
    },
    "StoreSettings": {
        "path": "Folder of objects and records.",
        "keys": (
            "Folder of the keys of jobs. Absent: `keys` in `path`. Leave it out of backups: destroying a key erases "
            "the job."
        ),
        "keep": "How long small records of finished jobs stay.",
        "at_most": "Maximum of all objects together, in bytes.",
    },
    "Policy": {
        "owners_at_least": "Minimum number of owners of a fit. With two, each can learn the sums of the other.",
        "rows_at_least": "Minimum number of joint rows of fits and of uses of a model.",
        "row_share_at_most": (
            "Limit on single rows that fits of several column owners must have, or a smaller one. Refuses such fits "
            "with more columns than rows, which cannot have it. Absent: no demand."
        ),
        "iterations_at_most": "Maximum number of iterations that a job may ask for.",
        "columns_at_most": "Maximum number of columns.",
        "jobs_at_once": "Maximum number of jobs that run at the same time.",
        "memory": "Maximum memory of the inputs of a job, in bytes. Absent: a quarter of the memory of this machine, or of "
        "the service if it has a limit (`MemoryMax`).",
        "jobs_per_member": "Maximum number of unfinished jobs of a member.",
        "jobs_per_day": "Maximum number of jobs that a member may submit in a day.",
        "max_job_lifetime": "How far ahead a job may expire, and how long its results may stay.",
        "max_model_lifetime": "How far ahead a model may be kept.",
        "bytes_per_member": "Maximum of the objects of a member in the store, in bytes.",
        "requests_per_second": "Rate limit for each member.",
        "attempts": "Failures of a job after which it is held for an operator.",
        "analyses": "Analyses that run here.",
        "forms": "Forms of data that run here.",
    },
    "WorkSettings": {
        "threads": "Threads of a job's kernels. 0: the cores of this machine, shared.",
        "timeout": "Seconds that a round may take.",
        "start_timeout": "Seconds until all four servers are connected.",
        "attempt_timeout": "Maximum seconds of an attempt as a whole. Small jobs have a lower limit of their own.",
    },
    "Workers": {
        "scheduler": "Address of the scheduler, `tls://host:port`.",
        "authority": "PEM file of the cluster's certificate authority.",
        "certificate": "PEM file of this server's certificate.",
        "key": "PEM file of its key.",
    },
}
"""Class -> field -> meaning."""

ROUTES: dict[tuple[str, str], str] = {
    ("GET", "/v1/hello"): "Identity of this server: its federation, revision, build and clock.",
    ("GET", "/v1/objects/{digest}"): "One signed object. `HEAD` tells whether it is there.",
    ("PUT", "/v1/objects/{digest}"): "Store a signed object. Safe to repeat.",
    ("GET", "/v1/jobs"): "The jobs in which the asking member has a part, with their states.",
    (
        "GET",
        "/v1/jobs/{job}/objects",
    ): "Headers of the objects of a job after `?after=`; the objects that decide its state in full.",
    ("GET", "/v1/events"): "Server-sent events: headers of new objects after `?after=`, and progress.",
    ("GET", "/v1/inventory"): "For an operator that lost its server: what the others hold for it.",
    ("GET", "/v1/restore/{job}/{owner}"): "For an operator that lost its server: its own shares of a contribution.",
    ("GET", "/v1/restore-model/{job}"): "For an operator that lost its server: its own shares of a kept model.",
    ("GET", "/v1/echo"): "Measure the round trip.",
    ("POST", "/v1/echo"): "Measure the speed of uploads.",
    ("GET", "/v1/reach"): "Whether this server reaches the mesh port of another one.",
    ("GET", "/"): "The operator's page.",
    ("GET", "/events"): "Server-sent events for the operator's page.",
    ("GET", "/healthz"): "Health as JSON. 503 and `faults` if a part of the server has died.",
    ("GET", "/metrics"): "Metrics for Prometheus.",
    ("GET", "/v1/state"): "The content of the operator's page as JSON.",
}
"""Verb and path -> what the server answers."""
