{{/* Of a binding: each lock of the namespace of the request is the parameter of one evaluation, in namespaces that are followed. */}}
{{- define "redlock-operator.lockParams" }}
  paramRef:
    selector: {}
    parameterNotFoundAction: Allow
  {{- with .Values.watchNamespaces }}
  # The operator does not follow the others.
  matchResources:
    namespaceSelector:
      matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: {{ . | uniq | toJson }}
  {{- end }}
{{- end }}
