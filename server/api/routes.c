/* The one table of routes: who may call what, how large a body may be, and the shape of its errors. What is not here does
 * not exist. */
#include "server/api/door.h"
#include "server/api/handlers.h"
#include <string.h>

enum { SMALL_BODY = 64 * 1024 };

static const api_route routes[] = {
    {"POST", "/generate", RIGHT_INFER, true, 0, .parse = parse_generate},
    {"POST", "/generate_stream", RIGHT_INFER, true, 0, .parse = parse_generate_stream},
    {"POST", "/", RIGHT_INFER, true, 0, .parse = parse_compat_generate},
    {"POST", "/tokenize", RIGHT_INFER, true, 0, .parse = parse_tokenize},
    {"POST", "/detokenize", RIGHT_INFER, false, 0, .parse = parse_detokenize},
    {"POST", "/v1/completions", RIGHT_INFER, false, 0, .parse = parse_completions},
    {"POST", "/v1/chat/completions", RIGHT_INFER, false, 0, .parse = parse_chat_completions},
    {"POST", "/apply-template", RIGHT_INFER, false, 0, .parse = parse_apply_template},
    {"POST", "/chat_tokenize", RIGHT_INFER, true, 0, .parse = parse_chat_tokenize},
    {"GET", "/v1/models", RIGHT_INFER, false, 0, handle_models_list},
    {"GET", "/v1/models/{id...}", RIGHT_INFER, false, 0, handle_model_show},
    {"GET", "/info", RIGHT_INFER, false, 0, handle_info},
    {"GET", "/v1/sessions", RIGHT_INFER, false, 0, handle_sessions_list},
    {"POST", "/v1/sessions", RIGHT_INFER, false, SMALL_BODY, handle_sessions_create},
    {"GET", "/v1/sessions/{id}", RIGHT_INFER, false, 0, handle_session_show},
    {"DELETE", "/v1/sessions/{id}", RIGHT_INFER, false, 0, handle_session_delete},
    {"GET", "/", 0, false, 0, handle_hello},
    {"GET", "/livez", 0, false, 0, handle_livez},
    {"GET", "/readyz", 0, false, 0, handle_readyz},
    {"GET", "/health", 0, false, 0, handle_readyz},
    {"GET", "/metrics", RIGHT_ADMIN, false, 0, handle_metrics},
};

static bool path_matches(const char *pattern, const char *path)
{
    const char *open = strchr(pattern, '{');
    if (open == NULL) {
        return strcmp(pattern, path) == 0;
    }
    size_t fixed = (size_t)(open - pattern);
    if (strncmp(pattern, path, fixed) != 0 || path[fixed] == '\0') {
        return false;
    }
    return strstr(open, "...}") != NULL || strchr(path + fixed, '/') == NULL;
}

static bool method_matches(const char *have, const char *asked)
{
    return strcmp(have, asked) == 0 || (strcmp(have, "GET") == 0 && strcmp(asked, "HEAD") == 0);
}

static unsigned method_bit(const char *method)
{
    return strcmp(method, "GET") == 0 ? 1u : strcmp(method, "POST") == 0 ? 2u : 4u;
}

const api_route *api_find_route(const char *method, const char *path, const char **allow)
{
    static const char *const allowed[8] = {
        "",       "GET, HEAD",         "POST",         "GET, HEAD, POST",
        "DELETE", "GET, HEAD, DELETE", "POST, DELETE", "GET, HEAD, POST, DELETE",
    };
    unsigned methods = 0;
    *allow = "";
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!path_matches(routes[i].path, path)) {
            continue;
        }
        if (method_matches(routes[i].method, method)) {
            return &routes[i];
        }
        methods |= method_bit(routes[i].method);
    }
    *allow = allowed[methods];
    return NULL;
}
