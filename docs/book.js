// Draws the diagrams of a page. Only a page that has one loads Mermaid, which scripts/build-docs puts at the top of the book.
const diagrams = document.querySelectorAll("code.language-mermaid");
if (diagrams.length > 0) {
    for (const code of diagrams) {
        const diagram = document.createElement("pre");
        diagram.className = "mermaid";
        diagram.textContent = code.textContent;
        code.parentElement.replaceWith(diagram);
    }
    const script = document.createElement("script");
    script.src = path_to_root + "mermaid.min.js";
    script.onload = () => {
        const theme = document.documentElement.className;
        mermaid.initialize({ startOnLoad: false, theme: /navy|coal|ayu/.test(theme) ? "dark" : "default" });
        mermaid.run();
    };
    document.body.append(script);
}
